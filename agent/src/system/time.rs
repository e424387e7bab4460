use std::io;
use std::time::Duration;

use anyhow::Context;
use contract::codes;
use contract::finding::Finding;

use crate::host::command::{Command, Runner};
use crate::host::files::ensure_content;
use crate::host::platform::Platform;
use crate::host::services::Services;

pub const FILE: &str = "/etc/chrony/chrony.conf";
/// Debian's unit of a chronyd that never has root's rights.
pub const UNIT: &str = "chronyd-restricted.service";

/// How long to wait for the first answer of a time server, times the timeout factor. Certificates are made after that.
/// chronyd sets the clock at the third answer, 4 s after the first one.
pub const FIRST_ANSWER: Duration = Duration::from_secs(15);

/// The largest difference between clock and servers, in seconds, that chronyd corrects after its first three updates.
const LARGEST: f64 = 600.0;

/// Configures chronyd with the time servers. A container uses its host's clock.
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

/// Whether the clock follows a time server. A finding names servers that differ too much to be followed, or says that
/// none is followed.
pub fn look(platform: &Platform, runner: &dyn Runner, servers: &[String]) -> (bool, Option<Finding>) {
    if !platform.sets_clock() || servers.is_empty() {
        return (false, None);
    }
    // chronyc fails while chronyd does not run.
    let said = runner.run(&Command::new("chronyc").args(["-n", "-c", "sources"])).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    // A server in the state `?` has not given enough answers.
    let known: Vec<_> = said.lines().filter_map(source).filter(|(state, ..)| *state != "?").collect();
    let is_far = |offset: f64| offset.abs() > LARGEST;
    let followed = known.iter().any(|(state, _, offset)| *state == "*" && !is_far(*offset));
    let far = known.iter().filter(|(_, _, offset)| is_far(*offset)).map(|(_, server, offset)| {
        format!("{server} is {:.0} s {}", offset.abs(), if *offset > 0.0 { "behind" } else { "ahead" })
    });
    let far: Vec<String> = far.collect();
    let (code, seen, action) = match (far.is_empty(), followed) {
        (true, true) => return (true, None),
        (true, false) => (
            &codes::CLOCK_UNSYNCHRONIZED,
            format!("the clock follows none of the time servers {}", servers.join(", ")),
            "Make one of them reachable, or of three at least two that agree, or correct the time servers",
        ),
        (false, _) => (
            &codes::CLOCK_DIFFERS,
            format!("the node does not follow time servers that are far from its own time: {}", far.join(", ")),
            "Correct the time servers. If their time is right, restart the node: it takes their time when it starts",
        ),
    };
    (followed, Some(code.finding("clock", seen, action)))
}

/// State and address of a server, and the seconds that the clock is ahead of it: a line of `chronyc -c sources`.
fn source(line: &str) -> Option<(&str, &str, f64)> {
    let fields: Vec<&str> = line.split(',').collect();
    Some((*fields.get(1)?, *fields.get(2)?, fields.get(7)?.parse().ok()?))
}

/// chronyd sets the clock at once in its first three updates only. Later it corrects differences up to [`LARGEST`]
/// gradually and ignores larger ones. It opens no port. Of three servers two must agree.
fn lay(platform: &Platform, servers: &[String]) -> io::Result<bool> {
    let sources: String = servers.iter().map(|server| format!("server {server} iburst ipv4\n")).collect();
    let quorum = if servers.len() >= 3 { "minsources 2\n" } else { "" };
    let text = format!(
        "{sources}{quorum}\
         makestep 1 3\n\
         maxchange {LARGEST} 3 -1\n\
         driftfile /var/lib/chrony/drift\n\
         rtcsync\n\
         port 0\n\
         cmdport 0\n"
    );
    ensure_content(&platform.path(FILE), text.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::command::Error;
    use contract::platform::CONTAINER_FILE;

    fn named(servers: &[&str]) -> Vec<String> {
        servers.iter().map(|server| (*server).to_owned()).collect()
    }

    #[test]
    fn servers_are_written_once_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        let text = || fs::read_to_string(platform.path(FILE)).unwrap();
        let servers = named(&["10.0.0.1", "time.example"]);
        assert!(lay(&platform, &servers).unwrap());
        assert!(!lay(&platform, &servers).unwrap());
        let settings =
            "makestep 1 3\nmaxchange 600 3 -1\ndriftfile /var/lib/chrony/drift\nrtcsync\nport 0\ncmdport 0\n";
        assert_eq!(text(), format!("server 10.0.0.1 iburst ipv4\nserver time.example iburst ipv4\n{settings}"));
        assert!(lay(&platform, &named(&["10.0.0.1", "10.0.0.2", "10.0.0.3"])).unwrap());
        assert!(text().ends_with(&format!("server 10.0.0.3 iburst ipv4\nminsources 2\n{settings}")), "{}", text());
        assert!(lay(&platform, &[]).unwrap());
        assert_eq!(text(), settings);
    }

    struct Chronyc(&'static str);

    impl Runner for Chronyc {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            assert_eq!(command.to_string(), "chronyc -n -c sources");
            Ok(self.0.into())
        }
    }

    const UNKNOWN: &str = "^,?,10.0.0.1,0,6,0,4294967295,0.000000000,0.000000000,0.000000000\n";
    const FOLLOWED: &str = "^,*,10.0.0.1,1,6,17,12,-0.000012000,-0.000023000,0.000200000\n";
    const FAR: &str = "^,*,10.0.0.1,1,6,377,12,3600.100000000,3600.100000000,0.000200000\n";

    #[test]
    fn server_that_differs_too_much_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        let servers = named(&["10.0.0.1", "10.0.0.2"]);
        let look = |said| {
            let (followed, finding) = look(&platform, &Chronyc(said), &servers);
            (followed, finding.map(|finding| finding.to_string()).unwrap_or_default())
        };
        assert_eq!(look(FOLLOWED), (true, String::new()));
        // The server differs too much, but its first answers are not judged yet.
        let first = "^,?,10.0.0.1,1,6,1,2,3600.100000000,3600.100000000,0.000200000\n";
        for none in ["", UNKNOWN, first, "506 Cannot talk to daemon\n"] {
            let (followed, finding) = look(none);
            assert!(!followed && finding.contains("clock.unsynchronized") && finding.contains("10.0.0.1, 10.0.0.2"));
        }
        let (followed, finding) = look(FAR);
        assert!(
            !followed && finding.contains("clock.differs") && finding.contains("10.0.0.1 is 3600 s behind"),
            "{finding}"
        );
        let both = "^,*,10.0.0.1,1,6,377,12,0.1,0.1,0.1\n^,x,10.0.0.2,1,6,377,12,-86400.2,-86400.2,0.1\n";
        let (followed, finding) = look(both);
        assert!(
            followed && finding.contains("clock.differs") && finding.contains("10.0.0.2 is 86400 s ahead"),
            "{finding}"
        );
    }

    #[test]
    fn chronyd_is_asked_only_with_servers_and_clock() {
        let directory = tempfile::tempdir().unwrap();
        let look =
            |servers: &[&str]| look(&Platform::detect(directory.path()).unwrap(), &Chronyc(FAR), &named(servers));
        assert_eq!(look(&[]), (false, None));
        let container = directory.path().join(CONTAINER_FILE.trim_start_matches('/'));
        fs::create_dir_all(container.parent().unwrap()).unwrap();
        let text = r#"{"cdrom": null, "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#;
        fs::write(container, text).unwrap();
        assert_eq!(look(&["10.0.0.1"]), (false, None));
    }
}
