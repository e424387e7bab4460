//! The console's lock: the password of `admin`, and a delay that slows down guessing and outlives the process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::host::command::{Command, Error, Runner};
use crate::host::files;
use crate::host::platform::Platform;

/// The count of failed guesses, until the next power-on.
const PATH: &str = "/run/kaas/console-lock.json";

/// The longest pause after a wrong password.
const LONGEST: Duration = Duration::from_secs(300);

/// PAM's own helper. It uses the same library and the same /etc/shadow as a login. Therefore each method of crypt(5)
/// that the property accepts works here, no hash is passed on, and the agent needs no cryptography. (No crate knows all
/// of these methods, and crypt(3) itself is not safe Rust.)
const HELPER: &str = "/usr/sbin/unix_chkpwd";

const USER: &str = "admin";

/// Wrong passwords in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Guesses {
    wrong: u32,
    /// No further password is accepted before, in seconds of the system's uptime.
    not_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Open,
    /// It is wrong, or it was not checked, because it is too early. The next one is accepted in so many seconds.
    Wait(u64),
}

/// The seconds until a password is accepted again.
pub(super) fn wait(platform: &Platform) -> u64 {
    load(platform).not_before.saturating_sub(uptime(platform))
}

/// Tries a password. After an error the console stays locked.
pub(super) fn try_password(platform: &Platform, runner: &dyn Runner, password: &str) -> anyhow::Result<Answer> {
    let before = wait(platform);
    if before > 0 {
        return Ok(Answer::Wait(before));
    }
    // Counted before it is checked: killing this process gives no free guess.
    let mut guesses = load(platform);
    guesses.wrong = guesses.wrong.saturating_add(1);
    let pause = pause(guesses.wrong);
    guesses.not_before = uptime(platform) + pause.as_secs();
    save(platform, guesses)?;
    // The helper reads up to a zero byte.
    let input = zeroize::Zeroizing::new(format!("{password}\0"));
    let helper = Command::new(platform.path(HELPER)).args([USER, "nonull"]).input(input.as_bytes());
    match runner.run(&helper) {
        Ok(_) => {
            save(platform, Guesses::default())?;
            Ok(Answer::Open)
        }
        Err(Error::Failed { status, .. }) if status.code().is_some() => Ok(Answer::Wait(pause.as_secs())),
        Err(error) => Err(error).context("checking the password"),
    }
}

/// One second after the first wrong password, then twice as long each time.
fn pause(wrong: u32) -> Duration {
    Duration::from_secs(1 << (wrong.max(1) - 1).min(10)).min(LONGEST)
}

/// A damaged record counts as the longest pause.
fn load(platform: &Platform) -> Guesses {
    match fs::read(platform.path(PATH)) {
        Ok(text) => serde_json::from_slice(&text).unwrap_or(Guesses { wrong: 10, not_before: 0 }),
        Err(_) => Guesses::default(),
    }
}

fn save(platform: &Platform, guesses: Guesses) -> anyhow::Result<()> {
    files::write_atomically(&platform.path(PATH), &serde_json::to_vec(&guesses)?, 0o600)
        .context("keeping the count of wrong passwords")
}

/// The uptime of the machine in seconds, which does not depend on the clock. Below another root, as in tests, a file may
/// replace the kernel's.
fn uptime(platform: &Platform) -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let text = read(&platform.path("/proc/uptime")).or_else(|| read(Path::new("/proc/uptime")));
    text.and_then(|text| text.split('.').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    struct Helper;

    impl Runner for Helper {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let expected = Command::new(command_program(command)).args([USER, "nonull"]).input("right\0");
            if *command == expected {
                return Ok(Vec::new());
            }
            Err(Error::Failed {
                command: command.to_string(),
                status: ExitStatus::from_raw(7 << 8),
                tail: String::new(),
            })
        }
    }

    fn command_program(command: &Command) -> String {
        command.to_string().split(' ').next().unwrap().to_owned()
    }

    struct Clock(tempfile::TempDir);

    impl Clock {
        fn at(&self, seconds: u64) -> Platform {
            fs::create_dir_all(self.0.path().join("proc")).unwrap();
            fs::write(self.0.path().join("proc/uptime"), format!("{seconds}.25 3.00\n")).unwrap();
            Platform::detect(self.0.path()).unwrap()
        }
    }

    #[test]
    fn pause_grows_with_each_guess() {
        let clock = Clock(tempfile::tempdir().unwrap());
        let guess = |at: u64, password| try_password(&clock.at(at), &Helper, password).unwrap();
        assert_eq!(guess(100, "wrong"), Answer::Wait(1));
        // Too early: even the right one is not checked, and does not count.
        assert_eq!(guess(100, "right"), Answer::Wait(1));
        assert_eq!(guess(101, "wrong"), Answer::Wait(2));
        assert_eq!(guess(103, "wrong"), Answer::Wait(4));
        assert_eq!(wait(&clock.at(105)), 2);
        assert_eq!(guess(107, "right"), Answer::Open);
        assert_eq!(wait(&clock.at(107)), 0);
        assert_eq!(guess(107, "wrong"), Answer::Wait(1));
    }

    #[test]
    fn damaged_count_gives_the_longest_pause() {
        assert_eq!(pause(1000), LONGEST);
        let clock = Clock(tempfile::tempdir().unwrap());
        let platform = clock.at(5);
        save(&platform, Guesses::default()).unwrap();
        fs::write(platform.path(PATH), "{").unwrap();
        assert_eq!(try_password(&platform, &Helper, "wrong").unwrap(), Answer::Wait(300));
    }

    #[test]
    fn console_stays_locked_without_the_helper() {
        let clock = Clock(tempfile::tempdir().unwrap());
        let error = try_password(&clock.at(5), &crate::host::command::Host, "right").unwrap_err();
        assert!(format!("{error:#}").contains("unix_chkpwd"));
    }
}
