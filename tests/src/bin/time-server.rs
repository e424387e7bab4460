//! A server of time for scenarios: SNTP version 4 (RFC 4330) from this machine's
//! clock, on the address that is given, until it is ended. A number of seconds after the address: its time is so far ahead.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

/// Seconds from 1900, where NTP's time begins, to 1970.
const SINCE_1900: u64 = 2_208_988_800;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: Ipv4Addr = arguments.next().context("no address was given")?.parse()?;
    let ahead: u64 = arguments.next().map_or(Ok(0), |seconds| seconds.parse::<u64>())?;
    let socket = UdpSocket::bind((address, 123)).with_context(|| format!("listening on {address}"))?;
    loop {
        let mut question = [0; 512];
        let (length, client) = socket.recv_from(&mut question)?;
        if length >= 48 {
            socket.send_to(&answer(&question, now(ahead)), client)?;
        }
    }
}

/// The answer to a client (RFC 4330, section 6), without precision or delays.
fn answer(question: &[u8], now: [u8; 8]) -> [u8; 48] {
    let mut answer = [0; 48];
    // No leap second, the client's version, mode server.
    answer[0] = question[0] & 0x38 | 4;
    // Stratum 1, as of a reference clock.
    answer[1] = 1;
    answer[2] = question[2];
    answer[3] = (-20_i8).to_be_bytes()[0];
    answer[12..16].copy_from_slice(b"LOCL");
    answer[16..24].copy_from_slice(&now);
    // The client's time of sending comes back.
    answer[24..32].copy_from_slice(&question[40..48]);
    answer[32..40].copy_from_slice(&now);
    answer[40..48].copy_from_slice(&now);
    answer
}

/// An NTP timestamp, so many seconds ahead: seconds since 1900 and their fraction, 32 bits each.
fn now(ahead: u64) -> [u8; 8] {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().wrapping_add(SINCE_1900 + ahead) & 0xffff_ffff;
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds << 32 | fraction).to_be_bytes()
}
