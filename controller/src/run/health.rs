//! Whether the process is well, for whoever has started it: it answers on the loopback interface.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one question and its answer may take.
const LIMIT: Duration = Duration::from_secs(1);
/// How many are answered at once: whoever connects and says nothing has a place for as long as that.
const AT_ONCE: usize = 64;
/// Longer than the line that is asked for.
const LONGEST: usize = 1024;

/// Listens where it is to.
///
/// # Errors
/// The address is not of the loopback interface, or is somebody's.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    ensure!(address.ip().is_loopback(), "{address} is not on the loopback interface");
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

/// Answers whoever asks, for ever.
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

/// HTTP as far as this needs it (RFC 9112, sections 3 and 4).
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
    async fn it_says_that_it_is_well_and_nothing_else_and_only_here() {
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
    async fn who_says_nothing_keeps_nobody_waiting() {
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
