//! A form from the property table: its fields, the typed text, and the problems next to each. Independent of how it is drawn or
//! saved.

use contract::finding::{Findings, Severity};
use contract::properties::{self, Property};
use contract::secret::Secret;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::facts::Facts;
use super::input::Input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of them: the cluster has not formed yet.
    All,
    /// Gateway, names and routes.
    Network,
    Time,
    Ssh,
    /// Proxy, trust, registry and all others that may still change.
    Site,
}

impl Scope {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::All => "Properties of this node",
            Self::Network => "Network",
            Self::Time => "Time",
            Self::Ssh => "SSH (off without a key)",
            Self::Site => "Site services",
        }
    }

    fn has(self, property: &Property) -> bool {
        let own = match property.key {
            properties::NTP_SERVERS => Self::Time,
            properties::SSH_AUTHORIZED_KEYS => Self::Ssh,
            properties::ADMIN_CIDRS => Self::Network,
            // A separate page asks for it as a password.
            properties::CONSOLE_PASSWORD_HASH => Self::All,
            _ if property.category == properties::Category::Node => Self::Network,
            _ => Self::Site,
        };
        self == Self::All || (property.changeable && self == own)
    }
}

/// The value of a field before it was changed.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Before {
    /// The text, which may be shown.
    Shown(String),
    /// A secret is set. It is never shown.
    Kept,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) property: &'static Property,
    pub(super) required: bool,
    /// The value if none is given.
    pub(super) default: Option<&'static str>,
    pub(super) before: Before,
    pub(super) input: Input,
    pub(super) problems: Vec<String>,
}

impl Field {
    /// Whether the typed text is hidden.
    pub(super) fn hidden(&self) -> bool {
        self.property.scrubbed()
    }

    /// The change, if any. A secret that is set stays unless another one is typed.
    fn change(&self) -> Option<(&'static str, Secret)> {
        let text = self.input.text();
        let changed = match &self.before {
            Before::Shown(before) => before != text,
            Before::Kept => !text.is_empty(),
        };
        changed.then(|| (self.property.key, Secret::new(text.to_owned())))
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) scope: Scope,
    pub(super) fields: Vec<Field>,
    pub(super) focus: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormAction {
    /// Nothing.
    Stay,
    Cancel,
    Save(Vec<(&'static str, Secret)>),
}

impl Form {
    /// A form of this node, with the current properties and their problems. Properties that its role does not use are left out.
    /// Without a role, those that its image does not use.
    pub(super) fn new(
        scope: Scope,
        facts: &Facts,
        present: &[(&'static Property, Secret)],
        findings: &Findings,
    ) -> Self {
        let role = facts.role;
        let field = |property: &'static Property| {
            let text = present.iter().find(|(row, _)| row.key == property.key).map(|(_, text)| text.expose());
            let before = match text {
                Some(text) if property.betrays(text) => Before::Kept,
                other => Before::Shown(other.unwrap_or_default().to_owned()),
            };
            let input = Input::new(match &before {
                Before::Shown(text) => text,
                Before::Kept => "",
            });
            Field {
                property,
                required: role.is_some_and(|role| property.required(role)),
                default: role.and_then(|role| property.default(role)),
                before,
                input,
                problems: Vec::new(),
            }
        };
        let asked_for = |property: &Property| facts.roles.as_ref().is_none_or(|roles| property.asked_for(roles));
        let used = |property: &Property| role.is_none_or(|role| property.need(role).is_some());
        let rows = properties::table().iter().filter(|row| scope.has(row) && asked_for(row) && used(row));
        let mut form = Self { scope, fields: rows.map(field).collect(), focus: 0 };
        form.blame(findings);
        form
    }

    /// Puts findings next to their fields, and the cursor on the first. Returns the findings that belong to no field.
    pub(super) fn blame(&mut self, findings: &Findings) -> Vec<String> {
        let mut others = Vec::new();
        self.fields.iter_mut().for_each(|field| field.problems.clear());
        for finding in findings.iter().filter(|finding| finding.severity == Severity::Error) {
            let text = format!("{}. {}.", finding.seen, finding.action);
            match self.fields.iter_mut().find(|field| field.property.key == finding.subject) {
                Some(field) => field.problems.push(text),
                None => others.push(format!("{}: {text}", finding.subject)),
            }
        }
        if let Some(first) = self.fields.iter().position(|field| !field.problems.is_empty()) {
            self.focus = first;
        }
        others
    }

    pub(super) fn focused(&mut self) -> &mut Field {
        &mut self.fields[self.focus]
    }

    pub(super) fn key(&mut self, key: &KeyEvent) -> FormAction {
        let last = self.fields.len() - 1;
        match key.code {
            KeyCode::Esc => return FormAction::Cancel,
            KeyCode::F(10) => return FormAction::Save(self.changes()),
            KeyCode::Enter if self.focus == last => return FormAction::Save(self.changes()),
            KeyCode::Enter | KeyCode::Down | KeyCode::Tab => self.focus = (self.focus + 1).min(last),
            KeyCode::Up | KeyCode::BackTab => self.focus = self.focus.saturating_sub(1),
            KeyCode::PageDown => self.focus = (self.focus + 8).min(last),
            KeyCode::PageUp => self.focus = self.focus.saturating_sub(8),
            KeyCode::Char('s') if key.modifiers.contains(ratatui::crossterm::event::KeyModifiers::CONTROL) => {
                return FormAction::Save(self.changes());
            }
            _ => {
                if self.focused().input.key(key) {
                    self.focused().problems.clear();
                }
            }
        }
        FormAction::Stay
    }

    fn changes(&self) -> Vec<(&'static str, Secret)> {
        self.fields.iter().filter_map(Field::change).collect()
    }
}
