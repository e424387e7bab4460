//! A server in the lab that takes what is put into it, as a WebDAV server does.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::scenario::{MOMENT, Scenario};

/// The server, as long as the process lives.
pub struct PutServer {
    /// Where it is, seen from the nodes.
    pub url: String,
    taken: Receiver<Vec<u8>>,
}

impl PutServer {
    /// Starts it at an address of the lab's bridge.
    ///
    /// # Panics
    /// There is no such address.
    pub fn start(scenario: &Scenario, address: Ipv4Addr) -> Self {
        let namespace = File::open(scenario.lab().network_namespace()).expect("the lab's network");
        let bind = thread::spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).expect("entering the lab's network");
            TcpListener::bind((address, 0)).expect("an address of the lab's")
        });
        let listener = bind.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let url = format!("http://{}/", listener.local_addr().expect("a listener"));
        let (give, taken) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that breaks off has put nothing.
                if let Ok(Some(body)) = take(&stream)
                    && give.send(body).is_err()
                {
                    return;
                }
            }
        });
        Self { url, taken }
    }

    /// The next body that was put.
    ///
    /// # Panics
    /// Nothing was.
    pub fn took(&self) -> Vec<u8> {
        self.taken.recv_timeout(MOMENT).expect("something is put into the server")
    }
}

/// The content of a PUT whose length is given (RFC 9110, section 9.3.4); none of any other request.
fn take(stream: &TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let is_put = line.starts_with("PUT ");
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut answer = stream;
    answer.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(is_put.then_some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_takes_whole_bodies() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        for (method, expected) in [("PUT", Some(b"whole".to_vec())), ("POST", None)] {
            let client = thread::spawn(move || {
                let mut client = TcpStream::connect(address).unwrap();
                write!(client, "{method} /a HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\n\r\nwhole").unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                answer
            });
            let (stream, _) = listener.accept().unwrap();
            assert_eq!(take(&stream).unwrap(), expected, "{method}");
            drop(stream);
            assert!(client.join().unwrap().starts_with("HTTP/1.1 201 "));
        }
    }
}
