//! A form made from the property table: which fields it has, what is typed
//! into them, what is wrong beside each. Knows nothing of how it is drawn or saved.

use contract::finding::{Findings, Severity};
use contract::properties::{self, Property};
use contract::secret::Secret;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::facts::Facts;
use super::input::Input;

/// Which properties a form asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of them: nothing is settled yet.
    All,
    /// Gateway, names and routes.
    Network,
    Time,
    Ssh,
    /// Proxy, trust, registry and whatever else may still change.
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
            // Asked for as a password, elsewhere.
            properties::CONSOLE_PASSWORD_HASH => Self::All,
            _ if property.category == properties::Category::Node => Self::Network,
            _ => Self::Site,
        };
        self == Self::All || (property.changeable && self == own)
    }
}

/// What a field was before it was changed.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Before {
    /// The text, which may be shown.
    Shown(String),
    /// A secret is set; it is never shown.
    Kept,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) property: &'static Property,
    /// Whether this node cannot do without a value.
    pub(super) required: bool,
    /// What it takes when none is given.
    pub(super) default: Option<&'static str>,
    pub(super) before: Before,
    pub(super) input: Input,
    pub(super) problems: Vec<String>,
}

impl Field {
    /// Whether what is typed is hidden.
    pub(super) fn hidden(&self) -> bool {
        self.property.scrubbed()
    }

    /// A secret that is set stays unless another one is typed.
    fn change(&self) -> Option<(&'static str, Secret)> {
        let text = self.input.text();
        let changed = match &self.before {
            Before::Shown(before) => before != text,
            Before::Kept => !text.is_empty(),
        };
        changed.then(|| (self.property.key, Secret::new(text.to_owned())))
    }
}

/// A form that is being filled in.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) scope: Scope,
    pub(super) fields: Vec<Field>,
    /// The field under the cursor.
    pub(super) focus: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormAction {
    /// Nothing more.
    Stay,
    /// Back without a change.
    Cancel,
    Save(Vec<(&'static str, Secret)>),
}

impl Form {
    /// A form of this node, with what the properties are now, and what is wrong with them. What neither its role nor,
    /// while it has none, its image uses is not asked for.
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

    /// Puts findings beside their fields, and the cursor on the first. Returns
    /// what is wrong with none of them.
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

    /// The field under the cursor.
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
