//! One request each to a server of the network, with short timeouts. Knows nothing of its purpose.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Answer;

/// How long one try may take.
const TRY: Duration = Duration::from_millis(1500);

/// A datagram may be lost, so there is more than one try.
const TRIES: usize = 2;

/// How long resolving a name may take.
const RESOLVING: Duration = Duration::from_secs(5);

/// NTP's port (RFC 5905, section 7.2).
const NTP: u16 = 123;

/// Whether a DNS server answers at all: any reply to our question counts, even a refusal.
pub(super) fn dns(server: SocketAddrV4) -> Answer {
    // RFC 1035, 4.1: identifier, flags (recursion desired), one question: the name servers (type 2) of the root, class
    // 1.
    const QUERY: [u8; 17] = [0x4b, 0x53, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];
    let is_reply = |reply: &[u8]| reply.len() >= 12 && reply[..2] == QUERY[..2] && reply[2] & 0x80 != 0;
    ask(server, &QUERY, is_reply).map(drop)
}

/// Whether a time server answers with a time that it trusts itself.
pub(super) fn time(server: &str) -> Answer {
    time_at(resolve(server, NTP)?)
}

fn time_at(address: SocketAddrV4) -> Answer {
    // RFC 5905, 7.3: no warning, version 4, client; the rest may be zero.
    let mut query = [0; 48];
    query[0] = 4 << 3 | 3;
    let is_reply = |reply: &[u8]| reply.len() >= 48 && reply[0] & 7 == 4;
    let reply = ask(address, &query, is_reply)?;
    // Leap indicator 3, stratum 0 ("kiss of death") and 16 mean: no time to give.
    if reply[0] >> 6 == 3 || reply[1] == 0 || reply[1] >= 16 {
        return Err("it answers, but does not know the time itself".to_owned());
    }
    Ok(())
}

/// Whether a host answers. A refused connection counts as an answer.
pub(super) fn reachable(address: SocketAddrV4) -> Answer {
    match TcpStream::connect_timeout(&SocketAddr::V4(address), TRY) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(words(&error)),
    }
}

fn ask(server: SocketAddrV4, query: &[u8], is_reply: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, String> {
    let attempt = || -> io::Result<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // On a connected socket only this server's replies arrive, and a refusal is reported as an error.
        socket.connect(server)?;
        socket.set_read_timeout(Some(TRY))?;
        socket.send(query)?;
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer)?;
        if !is_reply(&buffer[..length]) {
            return Err(io::Error::new(ErrorKind::InvalidData, "what answers is no such server"));
        }
        Ok(buffer[..length].to_vec())
    };
    let mut last = String::new();
    for _ in 0..TRIES {
        match attempt() {
            Ok(reply) => return Ok(reply),
            Err(error) => last = words(&error),
        }
    }
    Err(last)
}

/// The first IPv4 address of a name. The resolver has no time limit, so it runs on a thread that is left behind if it
/// takes too long.
fn resolve(host: &str, port: u16) -> Result<SocketAddrV4, String> {
    if let Ok(address) = host.parse() {
        return Ok(SocketAddrV4::new(address, port));
    }
    let (tell, told) = mpsc::channel();
    let name = host.to_owned();
    thread::spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(|mut found| {
            found.find_map(|address| match address {
                SocketAddr::V4(address) => Some(address),
                SocketAddr::V6(_) => None,
            })
        });
        let _ = tell.send(found);
    });
    match told.recv_timeout(RESOLVING) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err("its name has no IPv4 address".to_owned()),
        Ok(Err(error)) => Err(format!("its name cannot be resolved: {error}")),
        Err(_) => Err("its name cannot be resolved: no answer".to_owned()),
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer".to_owned(),
        ErrorKind::ConnectionRefused => "the host is up, but no such server runs there".to_owned(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "it cannot be reached".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server on loopback that answers one datagram.
    fn server(answer: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddrV4 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = socket.local_addr().unwrap() else { unreachable!("bound to IPv4") };
        thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&answer(&buffer[..length]), from).unwrap();
        });
        address
    }

    #[test]
    fn refusal_of_a_dns_server_counts_as_answer() {
        let refusing = server(|query| {
            let mut reply = query.to_vec();
            reply[2] |= 0x80;
            reply[3] = 5;
            reply
        });
        assert_eq!(dns(refusing), Ok(()));
        let other = ask(server(|_| b"hello".to_vec()), b"?", |_| false);
        assert!(other.is_err());
    }

    #[test]
    fn time_server_must_know_the_time() {
        let saying = |leap: u8, stratum: u8| {
            server(move |query| {
                let mut reply = query.to_vec();
                reply[0] = leap << 6 | 4 << 3 | 4;
                reply[1] = stratum;
                reply
            })
        };
        assert_eq!(time_at(saying(0, 2)), Ok(()));
        for (leap, stratum) in [(3, 2), (0, 0), (0, 16)] {
            assert_eq!(time_at(saying(leap, stratum)), Err("it answers, but does not know the time itself".to_owned()));
        }
    }

    #[test]
    fn closed_port_differs_from_silence() {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let SocketAddr::V4(free) = free else { unreachable!("bound to IPv4") };
        assert_eq!(dns(free), Err("the host is up, but no such server runs there".to_owned()));
        // It reads nothing and answers nothing.
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = silent.local_addr().unwrap() else { unreachable!("bound to IPv4") };
        assert_eq!(dns(address), Err("no answer".to_owned()));
    }

    #[test]
    fn host_is_reachable_if_it_accepts_or_refuses() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!("bound to IPv4") };
        assert_eq!(reachable(address), Ok(()));
        drop(listener);
        assert_eq!(reachable(address), Ok(()));
    }

    #[test]
    fn names_that_do_not_exist_are_reported() {
        assert_eq!(resolve("10.0.0.1", 7), Ok(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7)));
        let error = resolve("nowhere.invalid", 123).unwrap_err();
        assert!(error.starts_with("its name cannot be resolved"), "{error}");
    }
}
