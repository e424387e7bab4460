//! The home directory that the command works with. After sudo, `HOME` is root's or the caller's, depending on sudo's settings.
//! The command uses the caller's, where `make` keeps caches and labs. All other code, compilers included, reads `HOME`.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use nix::unistd::{Uid, User};

/// Starts the command again with the caller's home directory, if sudo has set root's.
pub fn settle() -> anyhow::Result<()> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let caller = std::env::var("SUDO_UID").ok().filter(|_| Uid::effective().is_root() && !is_in_a_shell_of_sudo());
    match callers_home(Path::new(&home), caller.as_deref(), Path::is_dir) {
        Some(home) => re_exec(&home).map(|never| match never {}),
        None => Ok(()),
    }
}

/// Whether sudo was called for a root shell (`sudo -i`, `sudo -s`, `sudo su`). sudo leaves its variables in that shell
/// (sudo(8), ENVIRONMENT). `SUDO_COMMAND` says which command sudo was called for.
fn is_in_a_shell_of_sudo() -> bool {
    let shells = std::fs::read_to_string("/etc/shells").unwrap_or_default();
    std::env::var("SUDO_COMMAND").is_ok_and(|called| is_shell(&called, &shells))
}

/// `shells` is the text of shells(5). `called` is the program's path, followed by its arguments.
fn is_shell(called: &str, shells: &str) -> bool {
    let (program, arguments) = called.split_once(' ').unwrap_or((called, ""));
    if ["/bin/su", "/usr/bin/su"].contains(&program) {
        return true;
    }
    // With a command (`-c`, `-lc`) or a script, the shell is not interactive.
    let mut arguments = arguments.split(' ').filter(|argument| !argument.is_empty());
    let is_setting = |option: &str| option.starts_with("--") || option.starts_with('-') && !option.contains('c');
    shells.lines().any(|shell| shell.starts_with('/') && shell == program) && arguments.all(is_setting)
}

/// The home directory of the user who called sudo. `None` if `home` is set and not root's, or if the user's own directory is
/// missing or root's.
fn callers_home(home: &Path, caller: Option<&str>, is_there: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let home_of = |user: u32| User::from_uid(Uid::from_raw(user)).ok().flatten().map(|user| user.dir);
    // Some users have no home directory, such as `nobody`.
    let callers = home_of(caller?.parse().ok()?).filter(|home| is_there(home))?;
    let is_roots = home.as_os_str().is_empty() || home_of(0).is_some_and(|roots| roots == home);
    (is_roots && callers != home).then_some(callers)
}

fn re_exec(home: &Path) -> anyhow::Result<Infallible> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(&own);
    command.arg0(arguments.next().unwrap_or_default()).args(arguments).env("HOME", home);
    Err(command.exec())
        .with_context(|| format!("starting {} with the home directory {}", own.display(), home.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_command_uses_the_callers_home() {
        let home_of = |user: u32| User::from_uid(Uid::from_raw(user)).unwrap().unwrap().dir;
        // Debian's user 2, bin, has a home that is not root's.
        let (roots, callers) = (home_of(0), home_of(2));
        let found = |home: &Path, caller| callers_home(home, caller, |_| true);
        assert_eq!(found(&roots, Some("2")), Some(callers.clone()));
        assert_eq!(found(Path::new(""), Some("2")), Some(callers.clone()));
        assert_eq!(found(&callers, Some("2")), None, "it is started again forever");
        assert_eq!(found(&roots, Some("0")), None);
        assert_eq!(found(&roots, None), None);
        assert_eq!(found(&roots, Some("no number")), None);
        assert_eq!(found(Path::new("/home/kept-by-sudo"), Some("2")), None);
        assert_eq!(callers_home(&roots, Some("2"), |_| false), None, "nobody's home is nowhere");
    }

    #[test]
    fn interactive_sudo_shell_keeps_roots_home() {
        let shells = "# shells\n/bin/sh\n/bin/bash\n";
        // `.ci/as-root` of the Makefile uses the first one.
        for called in ["/bin/sh", "/bin/bash", "/bin/bash -l", "/bin/bash --login -i", "/usr/bin/su", "/usr/bin/su -"] {
            assert!(is_shell(called, shells), "{called}");
        }
        for called in [
            "/usr/local/bin/kaas-dev image clean",
            "/bin/bash -c kaas-dev image clean",
            "/bin/bash -lc kaas",
            "/bin/bash -l script",
            "/bin/bash -c",
            "/usr/bin/make",
            "/usr/bin/make -l",
            "# shells",
            "",
        ] {
            assert!(!is_shell(called, shells), "{called}");
        }
    }
}
