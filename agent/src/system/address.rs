//! The network device that has an address.

use std::io;
use std::net::Ipv4Addr;

/// The network device that has `address`.
///
/// # Errors
/// No device has it, or the devices cannot be listed.
pub fn device(address: Ipv4Addr) -> io::Result<String> {
    nix::ifaddrs::getifaddrs()?
        .find(|interface| {
            interface.address.is_some_and(|found| found.as_sockaddr_in().is_some_and(|found| found.ip() == address))
        })
        .map(|interface| interface.interface_name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no network device has the address {address}")))
}
