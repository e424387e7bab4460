//! The administrator's shell behind the console, on its own pseudo-terminal. If no key is pressed for a while, the console
//! locks it with all its programs. It continues, and comes back when the console is unlocked.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};

/// How much of the latest output is shown again when the shell comes back, in bytes.
const KEPT: usize = 64 << 10;

pub(super) struct Shell {
    child: Child,
    keys: File,
    scrollback: Arc<Mutex<Scrollback>>,
    /// Readable when there is output to show. At its end when the shell has closed its terminal.
    news: UnixStream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellExit {
    Ended(ExitStatus),
    /// No key was pressed for too long. The shell continues.
    Idle,
}

#[derive(Default)]
struct Scrollback {
    text: Vec<u8>,
    shown: usize,
}

impl Scrollback {
    fn add(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        let gone = self.text.len().saturating_sub(KEPT);
        self.text.drain(..gone);
        self.shown = self.shown.saturating_sub(gone);
    }
}

impl Shell {
    /// Starts a program as the session leader of a new terminal with this size.
    pub(super) fn start(program: &[&str], (columns, rows): (u16, u16)) -> anyhow::Result<Self> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).context("making a terminal for the shell")?;
        // The shell's programs inherit only their side of the terminal.
        for side in [&pty.master, &pty.slave] {
            fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("making a terminal for the shell")?;
        }
        let side = || pty.slave.try_clone().context("making a terminal for the shell");
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).args(program).stdin(side()?).stdout(side()?).stderr(side()?);
        let child = session.spawn().context("starting a shell")?;
        drop((session, pty.slave));
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().context("reading the shell's terminal")?;
        let (news, tell) = UnixStream::pair().context("watching the shell's terminal")?;
        for side in [&news, &tell] {
            side.set_nonblocking(true).context("watching the shell's terminal")?;
        }
        let said = Arc::<Mutex<Scrollback>>::default();
        let keep = Arc::clone(&said);
        // Also while it is locked: a program that writes must not block.
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The read fails once no process has the other side open.
            while let Ok(read @ 1..) = screen.read(&mut chunk) {
                lock(&keep).add(&chunk[..read]);
                // If the queue is full, there is news already.
                let _ = (&tell).write(&[0]);
            }
        });
        Ok(Self { child, keys, scrollback: said, news })
    }

    /// Connects the shell with the terminal: keys from `keys`, output to `screen`. The kept output is written again
    /// first. An error if one of the two is closed.
    pub(super) fn attend(
        &mut self,
        keys: BorrowedFd<'_>,
        screen: &mut dyn Write,
        idle: Duration,
    ) -> anyhow::Result<ShellExit> {
        lock(&self.scrollback).shown = 0;
        let mut typed = Instant::now();
        loop {
            self.show(screen).context("writing on the terminal")?;
            let Some(left) = idle.checked_sub(typed.elapsed()) else { return Ok(ShellExit::Idle) };
            let mut both = [PollFd::new(keys, PollFlags::POLLIN), PollFd::new(self.news.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(left.min(Duration::from_secs(60))).unwrap_or(PollTimeout::MAX);
            match poll(&mut both, limit) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error).context("waiting for a key"),
            }
            let [from_keys, from_shell] = both.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
            if from_keys {
                let mut chunk = [0; 1024];
                match nix::unistd::read(keys, &mut chunk) {
                    Ok(0) => anyhow::bail!("the terminal is gone"),
                    Ok(read) => {
                        typed = Instant::now();
                        // A shell that has just ended reads no keys.
                        let _ = self.keys.write_all(&chunk[..read]);
                    }
                    Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
                    Err(error) => return Err(error).context("reading a key"),
                }
            }
            if from_shell && self.is_over()? {
                self.show(screen).context("writing on the terminal")?;
                return Ok(ShellExit::Ended(self.child.wait().context("waiting for the shell's end")?));
            }
        }
    }

    /// Empties the queue of news. Returns whether the shell has closed its terminal for good.
    fn is_over(&mut self) -> anyhow::Result<bool> {
        loop {
            match self.news.read(&mut [0; 1024]) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("watching the shell's terminal"),
            }
        }
    }

    fn show(&self, screen: &mut dyn Write) -> io::Result<()> {
        let text = {
            let mut said = lock(&self.scrollback);
            let text = said.text[said.shown..].to_vec();
            said.shown = said.text.len();
            text
        };
        screen.write_all(&text)?;
        screen.flush()
    }
}

impl Drop for Shell {
    /// The kernel sends SIGHUP to programs on a terminal when its other side is closed. The reading thread keeps that
    /// side open until the process ends. Therefore a shell that is dropped earlier gets the signal here.
    fn drop(&mut self) {
        if let (Ok(None), Ok(process)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGHUP);
        }
    }
}

fn lock(said: &Mutex<Scrollback>) -> MutexGuard<'_, Scrollback> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so long a test counts as hanging.
    const HANGS: Duration = Duration::from_secs(600);

    /// A user at a terminal.
    struct Person {
        hands: File,
        keys: File,
        seen: Vec<u8>,
    }

    impl Person {
        fn new() -> Self {
            let (read, write) = nix::unistd::pipe().unwrap();
            Self { hands: File::from(write), keys: File::from(read), seen: Vec::new() }
        }

        fn attends(&mut self, shell: &mut Shell, idle: Duration) -> ShellExit {
            self.seen.clear();
            shell.attend(self.keys.as_fd(), &mut self.seen, idle).unwrap()
        }

        fn saw(&self, words: &str) -> bool {
            String::from_utf8_lossy(&self.seen).contains(words)
        }
    }

    #[test]
    fn shell_has_its_own_terminal_and_status() {
        let mut shell =
            Shell::start(&["sh", "-c", "tty; stty size; read word; echo \"<$word>\"; exit 3"], (80, 25)).unwrap();
        let mut person = Person::new();
        person.hands.write_all(b"typed\r").unwrap();
        let ShellExit::Ended(status) = person.attends(&mut shell, HANGS) else { panic!("it is locked away") };
        assert_eq!(status.code(), Some(3));
        assert!(
            person.saw("/dev/pts/") && person.saw("25 80") && person.saw("<typed>"),
            "{}",
            person.seen.escape_ascii()
        );
    }

    #[test]
    fn idle_shell_is_locked_and_comes_back() {
        let script = "echo begun; seq 100000; echo filled; read word; echo \"<$word>\"";
        let mut shell = Shell::start(&["sh", "-c", script], (80, 25)).unwrap();
        let mut person = Person::new();
        // Output does not count as a key.
        assert_eq!(person.attends(&mut shell, Duration::ZERO), ShellExit::Idle);
        let until = Instant::now() + HANGS;
        while !person.saw("filled") {
            assert!(Instant::now() < until, "it has come to a halt");
            assert_eq!(person.attends(&mut shell, Duration::from_millis(20)), ShellExit::Idle);
        }
        assert_eq!(person.attends(&mut shell, Duration::from_millis(20)), ShellExit::Idle);
        assert!(person.seen.len() <= KEPT && person.saw("99999") && !person.saw("begun"));
        person.hands.write_all(b"back\r").unwrap();
        assert!(matches!(person.attends(&mut shell, HANGS), ShellExit::Ended(status) if status.success()));
        assert!(person.saw("filled") && person.saw("<back>"));
    }

    #[test]
    fn dropped_shell_gets_sighup() {
        let directory = tempfile::tempdir().unwrap();
        let told = directory.path().join("told");
        let script = format!("trap 'touch {}; exit' HUP; echo ready; while :; do sleep 0.05; done", told.display());
        // Also if the caller of the tests ignores the signal.
        let program = ["env", "--default-signal=HUP", "sh", "-c", &script];
        let mut shell = Shell::start(&program, (80, 25)).unwrap();
        let mut person = Person::new();
        let until = Instant::now() + HANGS;
        while !person.saw("ready") {
            assert!(Instant::now() < until, "it does not start");
            person.attends(&mut shell, Duration::from_millis(20));
        }
        drop(shell);
        while !told.exists() {
            assert!(Instant::now() < until, "it goes on");
            thread::yield_now();
        }
    }
}
