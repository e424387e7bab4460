//! The program after sudo.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, User, mkfifo};

/// The `HOME` in the program's environment once it works. It then reads a key from a pipe, until the pipe is closed.
fn home_of(sudo: Option<&str>, called: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, absent) = (directory.path().join("key.pem"), directory.path().join("absent"));
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kaas-dev"));
    command.args(["image", "build"]).arg(&absent).arg("--sign-key").arg(&pipe).arg("--sign-certificate").arg(&absent);
    command.env("HOME", User::from_uid(Uid::from_raw(0)).unwrap().unwrap().dir);
    command.env_remove("SUDO_UID").envs(sudo.map(|user| ("SUDO_UID", user))).env("SUDO_COMMAND", called);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The pipe cannot be opened for writing before a process reads it (fifo(7)).
    let writer = loop {
        match File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&pipe) {
            Ok(writer) => break writer,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "{error}"),
        }
        assert_eq!(child.try_wait().unwrap(), None, "it has not opened the pipe");
        std::thread::yield_now();
    };
    let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap();
    drop(writer);
    child.wait().unwrap();
    let environment = String::from_utf8(environment).unwrap();
    environment.split('\0').find_map(|line| line.strip_prefix("HOME=")).unwrap().to_owned()
}

#[test]
fn command_after_sudo_uses_the_callers_home_directory() {
    if !Uid::effective().is_root() {
        return;
    }
    let of = |user: u32| User::from_uid(Uid::from_raw(user)).unwrap().unwrap().dir.display().to_string();
    // Debian's user 2, bin.
    let command = "/usr/local/bin/kaas-dev image build spec.toml";
    assert_eq!(home_of(Some("2"), command), of(2));
    assert_eq!(home_of(None, command), of(0));
    // The command that `sudo -i` leaves in its shell.
    assert_eq!(home_of(Some("2"), "/bin/bash"), of(0));
}
