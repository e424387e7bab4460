//! `kaas-agent console`: the status page and the menu on a terminal of the VM, locked by the console password. It also has the
//! form to fix bad or missing properties. The command line can do all of it, too.

mod effects;
mod events;
mod facts;
mod form;
mod headline;
mod input;
mod lock;
#[cfg(test)]
mod pictures;
mod screens;
mod shell;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::MoveTo;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, Clear, ClearType};
use ratatui::{DefaultTerminal, Terminal};

use crate::host::files;
use crate::host::platform::Platform;
use crate::status;
use effects::perform;
use events::{Effect, Event, Outcome};
use facts::Facts;
use shell::{Shell, ShellExit};
use state::{ConsoleState, IDLE};

/// How often the facts are read when the agent reports nothing new.
const CALM: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_secs(1);

/// The options of `kaas-agent console`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The directory of the system's root file system
    #[arg(long, default_value = "/", hide = true)]
    root: PathBuf,
    /// After how many seconds without a key it locks itself, the shell too
    #[arg(long, default_value_t = IDLE, hide = true)]
    idle: u32,
}

/// Runs the console on the terminal of this process until the terminal is gone. No key ends it: on the VM's own
/// terminals there is no other access.
pub fn command(options: &Options) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        bail!("the console needs a terminal; `kaas-agent status` and `kaas-agent configure` do without");
    }
    // Log lines must not be written over the screen. Under systemd they go to the journal.
    if io::stderr().is_terminal() {
        log::set_max_level(log::LevelFilter::Off);
    }
    give_size();
    let mut terminal = ratatui::try_init().context("preparing the terminal")?;
    let Err(error) = run(options, &mut terminal);
    ratatui::restore();
    Err(error)
}

/// Sets a size: a serial port does not know the size of the terminal behind it.
fn give_size() {
    if terminal::size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0) {
        return;
    }
    if let Err(error) = process::Command::new("stty").args(["rows", "24", "cols", "80"]).status() {
        log::warn!("giving the terminal a size: {error}");
    }
}

fn run(options: &Options, terminal: &mut DefaultTerminal) -> anyhow::Result<Infallible> {
    let (root, idle) = (options.root.as_path(), options.idle);
    let mut watch = Watch::new(root);
    let facts = Facts::gather(root, SystemTime::now());
    let mut state = ConsoleState::new(facts, lock::wait(&Platform::detect(root)?), idle);
    draw(terminal, &mut state)?;
    let mut next = Instant::now() + TICK;
    let mut shell = None;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let seen = if event::poll(left).context("waiting for a key")? {
            match event::read().context("reading a key")? {
                // Removes text that the kernel or other programs wrote across the screen.
                Input::Key(key) if key.code == KeyCode::Char('l') && key.modifiers.contains(KeyModifiers::CONTROL) => {
                    *terminal = blank().context("drawing")?;
                    Some(Event::Resized)
                }
                Input::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key)),
                Input::Paste(text) => Some(Event::Paste(text)),
                Input::Resize(..) => Some(Event::Resized),
                _ => None,
            }
        } else {
            next = Instant::now() + TICK;
            Some(Event::Tick)
        };
        let Some(seen) = seen else { continue };
        let before = state.clone();
        let resized = matches!(seen, Event::Resized);
        let mut wanted = state.update(seen);
        while let Some(effect) = wanted {
            let outcome = match effect {
                Effect::Shell => away(terminal, &mut shell, idle)?,
                effect => perform(root, effect),
            };
            wanted = state.update(Event::Outcome(outcome));
        }
        if watch.has_news() {
            state.update(Event::Facts(Box::new(Facts::gather(root, SystemTime::now()))));
        }
        if resized || state.differs(&before) {
            draw(terminal, &mut state)?;
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, state: &mut ConsoleState) -> anyhow::Result<()> {
    let mut line = 0;
    terminal.draw(|frame| line = view::draw(frame, state)).context("drawing")?;
    state.scrolled_to(line);
    Ok(())
}

/// An empty terminal, which is then drawn completely. Ratatui's own method asks the terminal for its cursor, and fails if the
/// other end of a serial line does not answer.
fn blank() -> io::Result<DefaultTerminal> {
    execute!(io::stdout(), Clear(ClearType::All))?;
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

/// Gives the terminal to the shell, a new one if none runs, and takes it over again afterwards.
fn away(terminal: &mut DefaultTerminal, shell: &mut Option<Shell>, idle: u32) -> anyhow::Result<Outcome> {
    ratatui::restore();
    let result = attend(shell, Duration::from_secs(idle.into()));
    *terminal = ratatui::try_init().and_then(|_| blank()).context("taking the terminal back")?;
    Ok(match result {
        Ok(outcome) => outcome,
        Err(error) => Outcome::ShellEnded(format!("{error:#}")),
    })
}

fn attend(shell: &mut Option<Shell>, idle: Duration) -> anyhow::Result<Outcome> {
    let mut running = match shell.take() {
        Some(running) => running,
        None => {
            log::warn!("a shell was opened on the console");
            Shell::start(&["runuser", "--login", "admin"], terminal::size().context("measuring the terminal")?)?
        }
    };
    // Keys are passed on unchanged. The shell's own terminal interprets them.
    terminal::enable_raw_mode().context("preparing the terminal")?;
    execute!(io::stdout(), Clear(ClearType::All), MoveTo(0, 0)).context("clearing the terminal")?;
    Ok(match running.attend(io::stdin().as_fd(), &mut io::stdout(), idle)? {
        ShellExit::Idle => {
            log::warn!("the shell on the console was locked: no key was pressed");
            *shell = Some(running);
            Outcome::ShellLocked
        }
        ShellExit::Ended(status) => {
            log::info!("the shell on the console has ended: {status}");
            Outcome::ShellEnded("The shell has ended.".to_owned())
        }
    })
}

/// Notices new reports of the agent.
struct Watch {
    file: PathBuf,
    seen: Option<SystemTime>,
    due: Instant,
}

impl Watch {
    fn new(root: &Path) -> Self {
        let file = files::below(root, status::PATH);
        let mut watch = Self { file, seen: None, due: Instant::now() };
        watch.has_news();
        watch
    }

    fn has_news(&mut self) -> bool {
        let now = self.file.metadata().and_then(|file| file.modified()).ok();
        let news = now != self.seen || Instant::now() >= self.due;
        if news {
            (self.seen, self.due) = (now, Instant::now() + CALM);
        }
        news
    }
}
