//! Time servers, for timesyncd.

use std::io;
use std::time::Duration;

use anyhow::Context;
use contract::codes;
use contract::finding::Finding;

use crate::host::files::ensure_content;
use crate::host::platform::Platform;
use crate::host::services::Services;

pub const FILE: &str = "/etc/systemd/timesyncd.conf.d/50-kaas.conf";
pub const UNIT: &str = "systemd-timesyncd.service";

/// timesyncd makes it when a server has given the time for the first time since
/// power-on (systemd-timesyncd.service(8), FILES).
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// How long the first answer of a time server is waited for, times the timeout factor. Certificates
/// are made after that.
pub const FIRST_ANSWER: Duration = Duration::from_secs(15);

/// Hands the time servers to timesyncd. A container's clock is its host's.
///
/// # Errors
/// The file cannot be written, or systemd does not answer.
pub fn ensure(platform: &Platform, services: &Services<'_>, servers: &[String]) -> anyhow::Result<bool> {
    let changed = lay(platform, servers).with_context(|| format!("writing {FILE}"))?;
    if !platform.sets_clock() {
        return Ok(changed);
    }
    if servers.is_empty() {
        services.stop(UNIT, Duration::from_secs(30))?;
        return Ok(changed);
    }
    services.start_with(UNIT, changed)
}

/// Whether a server has given the time since power-on.
pub fn synchronized(platform: &Platform) -> bool {
    platform.sets_clock() && platform.path(SYNCHRONIZED).exists()
}

/// A finding while none of the servers has given the time.
pub fn unsynchronized(platform: &Platform, servers: &[String]) -> Option<Finding> {
    let expected = platform.sets_clock() && !servers.is_empty();
    (expected && !synchronized(platform)).then(|| {
        codes::CLOCK_UNSYNCHRONIZED.finding(
            "clock",
            format!("none of the time servers {} has given the time since power-on", servers.join(", ")),
            "Make one of them reachable, or correct the time servers",
        )
    })
}

fn lay(platform: &Platform, servers: &[String]) -> io::Result<bool> {
    let path = platform.path(FILE);
    let text = format!("[Time]\nNTP={}\n", servers.join(" "));
    ensure_content(&path, text.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files;

    #[test]
    fn servers_are_written_once_and_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        let servers = ["10.0.0.1".to_owned(), "time.example".to_owned()];
        assert!(lay(&platform, &servers).unwrap());
        assert!(!lay(&platform, &servers).unwrap());
        let text = std::fs::read_to_string(files::below(directory.path(), FILE)).unwrap();
        assert_eq!(text, "[Time]\nNTP=10.0.0.1 time.example\n");
        assert!(lay(&platform, &[]).unwrap());
    }

    #[test]
    fn servers_that_have_not_given_the_time_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        assert_eq!(unsynchronized(&platform, &[]), None);
        let servers = ["10.0.0.1".to_owned()];
        let finding = unsynchronized(&platform, &servers).unwrap();
        assert!(finding.code == "clock.unsynchronized" && finding.seen.contains("10.0.0.1"), "{finding}");
        let file = platform.path(SYNCHRONIZED);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
        assert_eq!(unsynchronized(&platform, &servers), None);
        assert!(synchronized(&platform));
    }
}
