//! A scripted terminal: on a virtual machine's second serial port, or of a console in a system container. It has the
//! operator's view of the screen, and presses keys.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use nix::pty::{Winsize, openpty};
use vt100::Parser;

use crate::scenario::Scenario;

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// The line of the first entry of a page.
const FIRST: usize = 2;

/// Keys, as a VT220 sends them.
pub mod key {
    pub const ENTER: &str = "\r";
    pub const ESCAPE: &str = "\x1b";
    /// The cursor one line down.
    pub const DOWN: &str = "\x1b[B";
    /// The first line.
    pub const HOME: &str = "\x1b[1~";
    /// Clears a field.
    pub const CLEAR: &str = "\x15";
    /// Saves a form.
    pub const SAVE: &str = "\x13";
    /// Draws everything again.
    pub const REDRAW: &str = "\x0c";
}

/// The terminal of one VM. It answers no question about itself, as some viewers of serial ports
/// do not: the console must work without. The VM may be powered off and on meanwhile only with a new one.
pub struct Terminal<'a> {
    scenario: &'a Scenario,
    stream: UnixStream,
    screen: Parser,
    /// The console, where it was started for this terminal.
    console: Option<Child>,
}

impl<'a> Terminal<'a> {
    /// Connects to the port of a VM that is on.
    pub fn connect(scenario: &'a Scenario, vm: &str) -> Self {
        let path = scenario.lab().terminal(vm);
        let stream = UnixStream::connect(&path).with_context(|| format!("connecting to {}", path.display())).unwrap();
        Self::of(scenario, stream, None)
    }

    /// Starts a console in a system container that is on, which has no terminal.
    pub fn inside(scenario: &'a Scenario, vm: &str) -> Self {
        let pty = openpty(&Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = scenario.lab().command_inside(vm, &["kaas-agent", "console"]).unwrap();
        let command = command.env("TERM", "linux").stdin(slave()).stdout(slave()).stderr(Stdio::null());
        let console = command.spawn().unwrap();
        let (stream, far) = UnixStream::pair().unwrap();
        let master = File::from(pty.master);
        passes_on(master.try_clone().unwrap(), far.try_clone().unwrap());
        passes_on(far, master);
        Self::of(scenario, stream, Some(console))
    }

    fn of(scenario: &'a Scenario, stream: UnixStream, console: Option<Child>) -> Self {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        Self { scenario, stream, screen: Parser::new(ROWS, COLUMNS, 0), console }
    }

    /// Presses keys, one after the other.
    pub fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.stream.write_all(key.as_bytes()).unwrap();
            // An escape is a separate key only if nothing follows at once.
            self.listen();
        }
    }

    /// Waits until the screen shows these words.
    pub fn shows(&mut self, words: &str, limit: Duration) {
        self.shows_one_of(&[words], limit);
    }

    /// Waits until the screen does not show these words.
    pub fn lacks(&mut self, words: &str, limit: Duration) {
        let scenario = self.scenario;
        scenario.obtain(&format!("the terminal not to show {words}"), limit, || {
            self.listen();
            Ok((!self.text().contains(words)).then_some(()))
        });
    }

    /// Waits until the screen shows one of these, and says which.
    pub fn shows_one_of<'w>(&mut self, words: &[&'w str], limit: Duration) -> &'w str {
        let scenario = self.scenario;
        scenario.obtain(&format!("the terminal to show {}", words.join(" or ")), limit, || {
            self.listen();
            let text = self.text();
            match words.iter().find(|words| text.contains(**words)) {
                Some(found) => Ok(Some(*found)),
                None => anyhow::bail!("it shows:\n{text}"),
            }
        })
    }

    /// Opens the menu's entry with this title; the menu must be shown.
    pub fn choose(&mut self, title: &str) {
        let text = self.text();
        let place = text.lines().skip(FIRST).position(|line| line.trim() == title);
        let place = place.unwrap_or_else(|| panic!("the menu has no {title}:\n{text}"));
        self.press(&[key::HOME]);
        self.press(&vec![key::DOWN; place]);
        self.press(&[key::ENTER]);
    }

    /// Opens the node's form from its menu, which has no protection, and waits for these words of the form.
    pub fn opens_the_form(&mut self, words: &str, limit: Duration) {
        self.press(&[key::ENTER]);
        self.shows("Enter: open", limit);
        self.choose("Properties of this node");
        self.shows(words, limit);
        self.print("the form");
    }

    /// The lines on the screen, without blanks at the ends.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self.screen.screen().rows(0, COLUMNS).map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Prints the screen for readers of the scenario's output.
    pub fn print(&self, what: &str) {
        println!("--- {what}\n{}\n---", self.text());
    }

    /// Takes in what has come, until nothing more does for a moment.
    fn listen(&mut self) {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return,
                Ok(length) => self.screen.process(&part[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
                Err(error) => panic!("reading from the terminal: {error}"),
            }
        }
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let Some(console) = &mut self.console else { return };
        // No key ends it. Without its terminal it ends.
        let _ = console.kill();
        let _ = console.wait();
    }
}

/// Passes bytes on until one of both ends is closed.
fn passes_on(mut from: impl io::Read + Send + 'static, mut to: impl io::Write + Send + 'static) {
    thread::spawn(move || io::copy(&mut from, &mut to));
}
