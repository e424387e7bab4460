//! Time servers, for timesyncd.

use std::io;
use std::time::Duration;

use anyhow::Context;

use crate::files::ensure_content;
use crate::platform::Platform;
use crate::services::Services;

const FILE: &str = "/etc/systemd/timesyncd.conf.d/50-kaas.conf";
const UNIT: &str = "systemd-timesyncd.service";

/// Hands the time servers to timesyncd. A container's clock is its host's.
///
/// # Errors
/// The file cannot be written, or systemd does not answer.
pub fn ensure(platform: &Platform, services: &Services<'_>, servers: &[String]) -> anyhow::Result<bool> {
    let changed = lay(platform, servers).with_context(|| format!("writing {FILE}"))?;
    if platform.is_container() {
        return Ok(changed);
    }
    if servers.is_empty() {
        services.stop(UNIT, Duration::from_secs(30))?;
        return Ok(changed);
    }
    services.start_with(UNIT, changed)
}

fn lay(platform: &Platform, servers: &[String]) -> io::Result<bool> {
    let path = platform.path(FILE);
    let text = format!("[Time]\nNTP={}\n", servers.join(" "));
    ensure_content(&path, text.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_once_and_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let platform = Platform::detect(folder.path()).unwrap();
        let servers = ["10.0.0.1".to_owned(), "time.example".to_owned()];
        assert!(lay(&platform, &servers).unwrap());
        assert!(!lay(&platform, &servers).unwrap());
        let text = std::fs::read_to_string(folder.path().join(FILE.trim_start_matches('/'))).unwrap();
        assert_eq!(text, "[Time]\nNTP=10.0.0.1 time.example\n");
        assert!(lay(&platform, &[]).unwrap());
    }
}
