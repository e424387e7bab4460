//! Checks whether another host on the network has an address, before the node claims it. It sends ARP probes as in RFC
//! 5227, 2.1.1, and then announcements as in 2.3. The waits are shorter than there: the RFC's are for networks slower
//! than today's Ethernet, and would delay each boot.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send, setsockopt, socket,
};
use nix::sys::time::TimeVal;

const PROBES: u32 = 3;
const ANNOUNCEMENTS: u32 = 2;
/// The wait between two probes, and after the last one. RFC 5227 has 1 to 2 seconds.
const INTERVAL: Duration = Duration::from_millis(350);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mac(pub(super) [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Another host that has or claims `address` on the network of `device`. `None` if there is no answer within a second.
/// `own` are the addresses of this host.
pub(super) fn probe(device: &str, address: Ipv4Addr, own: &[Mac]) -> io::Result<Option<Mac>> {
    ask(device, Ipv4Addr::UNSPECIFIED, address, |frame| conflict(frame, address).filter(|other| !own.contains(other)))
}

/// Another host that has `address` on the network of `device`. Requests of others for it do not count: control-plane
/// nodes that start together send them for the virtual IP.
pub(super) fn holder(device: &str, address: Ipv4Addr, own: &[Mac]) -> io::Result<Option<Mac>> {
    ask(device, Ipv4Addr::UNSPECIFIED, address, |frame| in_use(frame, address).filter(|other| !own.contains(other)))
}

/// The host that has `address` on the network of `device`, asked by this host as `sender`. `None` if there is no answer
/// within a second.
pub(super) fn find(device: &str, sender: Ipv4Addr, address: Ipv4Addr) -> io::Result<Option<Mac>> {
    ask(device, sender, address, |frame| conflict(frame, address))
}

fn ask(
    device: &str,
    sender: Ipv4Addr,
    address: Ipv4Addr,
    judge: impl Fn(&[u8]) -> Option<Mac>,
) -> io::Result<Option<Mac>> {
    let (socket, mac, index) = open(device)?;
    let frame = frame(mac, sender, address);
    for _ in 0..PROBES {
        send(socket.as_raw_fd(), &frame, MsgFlags::empty())?;
        let until = Instant::now() + INTERVAL;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
            setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, micros))?;
            let mut buffer = [0; 128];
            match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
                // Until it was bound, the socket also received frames of other devices.
                Ok((length, from)) if from.is_none_or(|from| from.ifindex() == index) => {
                    if let Some(other) = judge(&buffer[..length]) {
                        return Ok(Some(other));
                    }
                }
                Ok(_) | Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(None)
}

pub(super) fn announce(device: &str, address: Ipv4Addr) -> io::Result<()> {
    let (socket, mac, _) = open(device)?;
    for _ in 0..ANNOUNCEMENTS {
        send(socket.as_raw_fd(), &frame(mac, address, address), MsgFlags::empty())?;
    }
    Ok(())
}

fn open(device: &str) -> io::Result<(OwnedFd, Mac, usize)> {
    // The list of interfaces has the link-layer address to bind to.
    let link = nix::ifaddrs::getifaddrs()?
        .filter(|interface| interface.interface_name == device)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no network device {device}")))?;
    let mac = Mac(link.addr().unwrap_or_default());
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    bind(socket.as_raw_fd(), &link)?;
    Ok((socket, mac, link.ifindex()))
}

/// A request (RFC 826). A probe's sender address is zero, so that the caches of neighbours do not change. An
/// announcement's sender address is the announced address (RFC 5227, 1.1).
fn frame(own: Mac, sender: Ipv4Addr, address: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(own.0);
    // EtherType ARP; Ethernet, IPv4, lengths 6 and 4, request.
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend(own.0);
    frame.extend(sender.octets());
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame
}

/// The sender of a frame that shows that another host uses or claims the address (RFC 5227, 2.1.1).
fn conflict(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    let is_arp = frame.len() >= 42 && frame[12..20] == [0x08, 0x06, 0, 1, 0x08, 0, 6, 4];
    if !is_arp {
        return None;
    }
    let mac = Mac(frame[22..28].try_into().ok()?);
    let (sender, target) = (&frame[28..32], &frame[38..42]);
    let in_use = sender == address.octets();
    let probed_by_another = frame[20..22] == [0, 1] && sender == [0; 4] && target == address.octets();
    (in_use || probed_by_another).then_some(mac)
}

/// The sender of a frame that shows that the sender has the address.
fn in_use(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    conflict(frame, address).filter(|_| frame[28..32] == address.octets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn ip(arguments: &str) {
        let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A network of the test's thread: a cable from `here` to `there`.
    fn network() {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("this test needs root");
        ip("link add here address 02:00:00:00:00:01 type veth peer name there address 02:00:00:00:00:02");
        ip("link set here up");
        ip("link set there up");
    }

    #[test]
    fn address_in_use_is_found_with_its_owner() {
        network();
        ip("addr add 10.9.8.7/24 dev there");
        let taken = probe("here", Ipv4Addr::new(10, 9, 8, 7), &[OWN]).unwrap();
        assert_eq!(taken.map(|mac| mac.to_string()).as_deref(), Some("02:00:00:00:00:02"));
        assert_eq!(probe("here", Ipv4Addr::new(10, 9, 8, 8), &[OWN]).unwrap(), None);
    }

    #[test]
    fn host_with_an_address_finds_its_neighbour() {
        network();
        ip("addr add 10.9.8.1/24 dev there");
        let own = Ipv4Addr::new(10, 9, 8, 7);
        let found = find("here", own, Ipv4Addr::new(10, 9, 8, 1)).unwrap();
        assert_eq!(found.map(|mac| mac.to_string()).as_deref(), Some("02:00:00:00:00:02"));
        assert_eq!(find("here", own, Ipv4Addr::new(10, 9, 8, 2)).unwrap(), None);
    }

    #[test]
    fn announcement_updates_caches_of_neighbours() {
        network();
        let known = |device: &str| {
            let output = Command::new("ip").args(["neigh", "show", "10.9.8.7", "dev", device]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        ip("addr add 10.9.8.1/24 dev there");
        // Linux ignores a change within a second of the last one.
        ip("ntable change name arp_cache dev there locktime 0");
        ip("neigh add 10.9.8.7 lladdr 02:00:00:00:00:99 dev there nud stale");
        announce("here", Ipv4Addr::new(10, 9, 8, 7)).unwrap();
        assert!(known("there").contains("02:00:00:00:00:01"), "{}", known("there"));
    }

    #[test]
    fn fuzz_of_arp_frames() {
        use crate::fuzz::{Example, fuzz};

        let (address, other) = (Ipv4Addr::new(10, 0, 0, 1), Mac([2, 0, 0, 0, 0, 9]));
        let mut reply = frame(other, address, address);
        reply[21] = 2;
        let examples =
            [frame(other, Ipv4Addr::UNSPECIFIED, address), frame(other, address, address), reply].map(Example::new);
        fuzz("ARP", 0, &examples, |bytes| {
            let (conflict, in_use) = (conflict(bytes, address), in_use(bytes, address));
            assert!(in_use.is_none() || in_use == conflict);
            assert!(conflict.is_none_or(|mac| bytes[22..28] == mac.0));
        });
    }

    #[test]
    fn missing_or_inactive_device_is_an_error() {
        network();
        ip("link set here down");
        assert!(probe("here", Ipv4Addr::new(10, 9, 8, 7), &[]).is_err());
        assert!(probe("nowhere", Ipv4Addr::new(10, 9, 8, 7), &[]).is_err());
    }

    #[test]
    fn only_replies_announcements_and_probes_are_conflicts() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let other = Mac([2, 0, 0, 0, 0, 9]);
        let mut probe = frame(other, Ipv4Addr::UNSPECIFIED, address);
        assert_eq!(conflict(&probe, address), Some(other));
        assert_eq!(in_use(&probe, address), None);
        assert_eq!(conflict(&probe, Ipv4Addr::new(10, 0, 0, 2)), None);
        // A reply from the owner.
        probe[21] = 2;
        assert_eq!(conflict(&probe, address), None);
        probe[28..32].copy_from_slice(&address.octets());
        assert_eq!(conflict(&probe, address), Some(other));
        assert_eq!(in_use(&probe, address), Some(other));
        // A request alone shows nothing.
        let mut request = frame(other, Ipv4Addr::UNSPECIFIED, address);
        request[28..32].copy_from_slice(&[10, 0, 0, 5]);
        assert_eq!(conflict(&request, address), None);
        assert_eq!(conflict(&probe[..40], address), None);
        probe[12] = 0x86;
        assert_eq!(conflict(&probe, address), None);
    }
}
