use std::io;
use std::net::Ipv4Addr;

/// The network device that has `address`.
pub fn device(address: Ipv4Addr) -> io::Result<String> {
    nix::ifaddrs::getifaddrs()?
        .find(|interface| {
            interface.address.is_some_and(|found| found.as_sockaddr_in().is_some_and(|found| found.ip() == address))
        })
        .map(|interface| interface.interface_name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no network device has the address {address}")))
}
