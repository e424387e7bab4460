//! The console's state, and how events change it. Pure: it returns actions as an [`Effect`], and gets their results as an
//! [`Event`].

use contract::secret::Secret;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::events::{Effect, Event, Outcome};
use super::facts::{Access, Facts};
use super::form::{Form, FormAction, Scope};
use super::input::Input;
use super::screens::{Confirm, Item, Screen};

/// Seconds without a key after which an unlocked console locks itself.
pub(super) const IDLE: u32 = 300;

/// The notice about a shell that was locked.
const BEHIND: &str = "A shell still runs behind the lock: choose Shell in the menu to return to it.";

/// The shortest password that is accepted.
const SHORTEST: usize = 8;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct ConsoleState {
    pub(super) facts: Facts,
    pub(super) screen: Screen,
    pub(super) unlocked: bool,
    /// Seconds until a password is accepted again.
    pub(super) wait: u64,
    pub(super) notice: Option<String>,
    /// Ticks without a key.
    idle: u32,
    /// The number of ticks that locks it.
    idle_limit: u32,
}

impl ConsoleState {
    /// The status page of a console that locks itself after so many ticks without a key.
    pub(super) fn new(facts: Facts, wait: u64, idle_limit: u32) -> Self {
        let screen = Screen::Status { scroll: 0 };
        Self { facts, screen, unlocked: false, wait, notice: None, idle: 0, idle_limit }
    }

    pub(super) fn items(&self) -> Vec<Item> {
        if self.facts.access == Access::ResetOnly {
            return vec![Item::Reset];
        }
        let mut items = Vec::new();
        if self.facts.may_force_adopt() {
            items.push(Item::ForceAdopt);
        }
        if self.facts.settled {
            items.extend([Scope::Network, Scope::Time].map(Item::Form));
        } else if !self.facts.damaged {
            items.push(Item::Form(Scope::All));
        }
        if !self.facts.unconfigured && !self.facts.damaged {
            items.push(Item::Password);
        }
        if self.facts.settled {
            items.extend([Scope::Ssh, Scope::Site].map(Item::Form));
        }
        if !self.facts.certificates.is_empty() {
            items.push(Item::Certificates);
        }
        items.extend([Item::Logs, Item::Bundle, Item::Versions, Item::Restart, Item::PowerOff]);
        if self.facts.access == Access::Locked {
            items.extend([Item::Shell, Item::Reset]);
        }
        items
    }

    /// Handles an event, and returns the effect to perform. The state changes if the screen must be drawn again.
    pub(super) fn update(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(key) => {
                self.idle = 0;
                self.key(&key)
            }
            Event::Paste(text) => {
                self.idle = 0;
                self.paste(&text);
                None
            }
            Event::Resized => None,
            Event::Tick => {
                self.wait = self.wait.saturating_sub(1);
                self.idle = self.idle.saturating_add(1);
                if self.idle == self.idle_limit {
                    self.lock(None);
                }
                None
            }
            Event::Facts(facts) => {
                self.facts = *facts;
                if self.may_act() || matches!(self.screen, Screen::Status { .. } | Screen::Unlock(_)) {
                    self.stay_on_the_menu();
                } else {
                    self.lock(Some("The node has changed: back to its status."));
                }
                None
            }
            Event::Outcome(outcome) => {
                self.outcome(outcome);
                None
            }
        }
    }

    pub(super) fn differs(&self, before: &Self) -> bool {
        *self != Self { idle: self.idle, ..before.clone() }
    }

    /// Limits the position of a scrolled page to its end.
    pub(super) fn scrolled_to(&mut self, line: usize) {
        match &mut self.screen {
            Screen::Status { scroll }
            | Screen::Certificates { scroll }
            | Screen::Versions { scroll }
            | Screen::Logs { scroll, .. } => *scroll = line,
            _ => {}
        }
    }

    fn may_act(&self) -> bool {
        match self.facts.access {
            Access::Open | Access::ResetOnly => true,
            Access::StatusOnly => false,
            Access::Locked => self.unlocked,
        }
    }

    fn lock(&mut self, why: Option<&str>) {
        self.unlocked = false;
        self.screen = Screen::Status { scroll: 0 };
        self.notice = why.map(str::to_owned);
    }

    /// Keeps the selection on the menu, which may have become shorter.
    fn stay_on_the_menu(&mut self) {
        let last = self.items().len() - 1;
        if let Screen::Menu { selected } = &mut self.screen {
            *selected = (*selected).min(last);
        }
    }

    fn menu(&mut self) {
        self.screen = Screen::Menu { selected: 0 };
    }

    fn key(&mut self, key: &KeyEvent) -> Option<Effect> {
        // Ctrl-C ends nothing, and is no letter.
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return None;
        }
        self.notice = None;
        let escape = key.code == KeyCode::Esc;
        let enter = key.code == KeyCode::Enter;
        match &mut self.screen {
            Screen::Status { scroll } => {
                if !enter {
                    turn(scroll, key);
                    return None;
                }
                match self.facts.access {
                    Access::StatusOnly => {
                        self.notice = Some(self.facts.why_status_only().into());
                    }
                    Access::Locked if !self.unlocked => self.screen = Screen::Unlock(Input::new("")),
                    _ => self.menu(),
                }
            }
            Screen::Unlock(_) if escape => self.lock(None),
            Screen::Unlock(input) if enter => {
                let typed = Secret::new(input.text().to_owned());
                *input = Input::new("");
                if self.wait == 0 && !typed.expose().is_empty() {
                    return Some(Effect::Unlock(typed));
                }
            }
            Screen::Unlock(input) => _ = input.key(key),
            Screen::Menu { .. } if escape => self.lock(None),
            Screen::Menu { selected } => {
                let selected = *selected;
                return self.menu_key(selected, key);
            }
            Screen::Form(form) => match form.key(key) {
                FormAction::Stay => {}
                FormAction::Cancel => self.menu(),
                FormAction::Save(changes) if changes.is_empty() => self.notice = Some("Nothing was changed.".into()),
                FormAction::Save(changes) => return Some(Effect::Change(changes)),
            },
            Screen::Password { .. } | Screen::Confirm(_) if escape => self.menu(),
            Screen::Password { first, second, at_second } => match key.code {
                KeyCode::Enter if *at_second => {
                    let (one, other) = (first.text().to_owned(), second.text().to_owned());
                    return self.new_password(Secret::new(one), &Secret::new(other));
                }
                KeyCode::Enter | KeyCode::Tab | KeyCode::Down => *at_second = true,
                KeyCode::BackTab | KeyCode::Up => *at_second = false,
                _ => _ = if *at_second { second.key(key) } else { first.key(key) },
            },
            Screen::Confirm(confirm) => {
                confirm.wrong = false;
                if !enter {
                    confirm.typed.key(key);
                } else if confirm.typed.text().trim() == confirm.word {
                    let effect = confirm.effect.clone();
                    self.menu();
                    return Some(effect);
                } else {
                    confirm.wrong = true;
                    confirm.typed = Input::new("");
                }
            }
            Screen::Certificates { .. } | Screen::Versions { .. } | Screen::Logs { .. } if escape || enter => {
                self.menu()
            }
            Screen::Certificates { scroll } | Screen::Versions { scroll } | Screen::Logs { scroll, .. } => {
                turn(scroll, key);
            }
        }
        None
    }

    fn menu_key(&mut self, selected: usize, key: &KeyEvent) -> Option<Effect> {
        let items = self.items();
        let last = items.len() - 1;
        let moved = match key.code {
            KeyCode::Up => selected.checked_sub(1).unwrap_or(last),
            KeyCode::Down => (selected + 1) % items.len(),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Enter => return self.choose(items[selected]),
            _ => selected,
        };
        self.screen = Screen::Menu { selected: moved };
        None
    }

    fn choose(&mut self, item: Item) -> Option<Effect> {
        let word = self.facts.node().unwrap_or("yes").to_owned();
        let confirm = |title, what: &str, effect| {
            let (typed, what) = (Input::new(""), what.to_owned());
            Screen::Confirm(Confirm { title, what, word, typed, wrong: false, effect })
        };
        self.screen = match item {
            Item::ForceAdopt => return Some(Effect::LookAtForceAdopt),
            Item::Form(scope) => return Some(Effect::Present(scope)),
            Item::Logs => return Some(Effect::Logs),
            Item::Shell => return Some(Effect::Shell),
            Item::Password => Screen::Password { first: Input::new(""), second: Input::new(""), at_second: false },
            Item::Certificates => Screen::Certificates { scroll: 0 },
            Item::Versions => Screen::Versions { scroll: 0 },
            Item::Bundle => return Some(Effect::Bundle),
            Item::Reset => return Some(Effect::LookAtReset),
            Item::Restart => {
                confirm("Restart", "This VM restarts: what runs on it stops for some minutes.", Effect::Restart)
            }
            Item::PowerOff => {
                confirm("Power off", "This VM is shut down and powered off: what runs on it stops.", Effect::PowerOff)
            }
        };
        None
    }

    fn new_password(&mut self, one: Secret, other: &Secret) -> Option<Effect> {
        let problem = if one != *other {
            Some("The two are not the same. Nothing was changed.".to_owned())
        } else if one.expose().chars().count() < SHORTEST {
            Some(format!("Give at least {SHORTEST} characters. Nothing was changed."))
        } else {
            None
        };
        if problem.is_some() {
            self.notice = problem;
            self.screen = Screen::Password { first: Input::new(""), second: Input::new(""), at_second: false };
            return None;
        }
        Some(Effect::SetPassword(one))
    }

    fn paste(&mut self, text: &str) {
        match &mut self.screen {
            Screen::Unlock(input) => input.paste(text),
            Screen::Confirm(confirm) => confirm.typed.paste(text),
            Screen::Password { first, second, at_second } => if *at_second { second } else { first }.paste(text),
            Screen::Form(form) => {
                form.focused().input.paste(text);
                form.focused().problems.clear();
            }
            _ => {}
        }
    }

    fn outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Unlocked => {
                self.unlocked = true;
                self.wait = 0;
                self.menu();
            }
            Outcome::Wait(seconds) => {
                self.wait = seconds;
                self.notice = Some("This password was not accepted.".into());
            }
            Outcome::Present(scope, present) => {
                let findings = self.facts.status.as_ref().map(|status| status.findings.clone()).unwrap_or_default();
                self.screen = Screen::Form(Form::new(scope, &self.facts, &present, &findings));
            }
            Outcome::Done(words) => {
                if matches!(self.screen, Screen::Form(_) | Screen::Password { .. }) {
                    self.screen = Screen::Status { scroll: 0 };
                }
                self.notice = Some(words);
            }
            Outcome::Refused(findings) => {
                let mut words = vec!["Nothing was saved.".to_owned()];
                match &mut self.screen {
                    Screen::Form(form) => words.extend(form.blame(&findings)),
                    _ => words.extend(findings.iter().map(|finding| format!("{}: {}.", finding.subject, finding.seen))),
                }
                self.notice = Some(words.join(" "));
            }
            Outcome::Logs(lines) => {
                // The newest are at the end.
                self.screen = Screen::Logs { scroll: usize::MAX, lines };
            }
            Outcome::Reset { words, node, cluster } => {
                let word = cluster.as_ref().map_or_else(|| node.clone(), |cluster| format!("{node} {cluster}"));
                self.screen = Screen::Confirm(Confirm {
                    title: "Reset",
                    what: words,
                    word,
                    typed: Input::new(""),
                    wrong: false,
                    effect: Effect::Reset { node, cluster },
                });
            }
            Outcome::ForceAdopt { words, word } => {
                self.screen = Screen::Confirm(Confirm {
                    title: Item::ForceAdopt.title(),
                    what: words,
                    word: word.clone(),
                    typed: Input::new(""),
                    wrong: false,
                    effect: Effect::ForceAdopt(word),
                });
            }
            Outcome::ShellLocked => self.lock(Some(BEHIND)),
            Outcome::ShellEnded(words) | Outcome::Failed(words) => self.notice = Some(words),
        }
    }
}

/// Scrolls, also beyond the end: see [`ConsoleState::scrolled_to`].
fn turn(scroll: &mut usize, key: &KeyEvent) {
    const PAGE: usize = 15;
    *scroll = match key.code {
        KeyCode::Up => scroll.saturating_sub(1),
        KeyCode::Down => scroll.saturating_add(1),
        KeyCode::PageUp => scroll.saturating_sub(PAGE),
        KeyCode::PageDown | KeyCode::Char(' ') => scroll.saturating_add(PAGE),
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => *scroll,
    };
}
