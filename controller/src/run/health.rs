//! The health check of the process, an HTTP server on the loopback interface.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The limit for one request and its response.
const LIMIT: Duration = Duration::from_secs(1);
/// The number of connections at once. A silent connection counts until its limit.
const AT_ONCE: usize = 64;
/// The limit of a request, in bytes. The expected request line is shorter.
const LONGEST: usize = 1024;

/// # Errors
/// The address is not on the loopback interface, or is in use.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    ensure!(address.ip().is_loopback(), "{address} is not on the loopback interface");
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

pub async fn answers(listener: TcpListener) {
    answers_within(LIMIT, &listener).await;
}

async fn answers_within(limit: Duration, listener: &TcpListener) {
    let mut answering = JoinSet::new();
    loop {
        while answering.len() >= AT_ONCE {
            answering.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(answering.spawn(timeout(limit, answer(stream)))),
                Err(error) => {
                    log::debug!("saying how it is: {error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(_) = answering.join_next() => {}
        }
    }
}

/// As much of HTTP as the check needs (RFC 9112, sections 3 and 4).
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") && asked.len() < LONGEST {
        let mut part = [0; 256];
        match stream.read(&mut part).await? {
            0 => break,
            count => asked.extend_from_slice(&part[..count]),
        }
    }
    let status = if asked.starts_with(b"GET /healthz ") { "200 OK" } else { "404 Not Found" };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(address: SocketAddr, asked: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn the_check_answers_healthz_on_loopback_only() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answering = tokio::spawn(answers(listener));
        assert_eq!(said(address, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await, "HTTP/1.1 200 OK");
        assert_eq!(said(address, "GET / HTTP/1.1\r\n\r\n").await, "HTTP/1.1 404 Not Found");
        let long = "x".repeat(LONGEST);
        assert_eq!(said(address, &long).await, "HTTP/1.1 404 Not Found");
        answering.abort();
        assert!(super::listen("192.0.2.1:80".parse().unwrap()).await.is_err());
    }

    #[tokio::test]
    async fn silent_connections_do_not_block_the_check() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answering = tokio::spawn(async move { answers_within(Duration::MAX, &listener).await });
        let mut silent = Vec::new();
        for _ in 1..AT_ONCE {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let asked = said(address, "GET /healthz HTTP/1.1\r\n\r\n");
        assert_eq!(timeout(Duration::from_secs(300), asked).await.unwrap(), "HTTP/1.1 200 OK");
        answering.abort();
    }
}
