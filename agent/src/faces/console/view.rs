//! Draws the state in plain text and sixteen colours, without lines or glyphs that a console's font may lack. The screen has at
//! least 40 columns and 12 rows.

use contract::finding::{Finding, Severity};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::facts::{Access, Facts};
use super::form::{Before, Field, Form};
use super::headline::{Headline, Urgency, headlines};
use super::input::Input;
use super::screens::{Confirm, Screen};
use super::state::ConsoleState;
use crate::status::{Phase, Status};

/// Columns of names on the left of a page.
const NAMES: usize = 18;
/// Columns of keys on the left of a form: the longest key, a mark and a blank.
const KEYS: usize = 24;
/// Certificates that expire within so many days are highlighted.
const SOON: i64 = 30;

const NORMAL: Style = Style::new();
const DIM: Style = Style::new().fg(Color::DarkGray);
const GOOD: Style = Style::new().fg(Color::Green);
const WORSE: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// A page before it is cut to the screen.
#[derive(Default)]
struct Page {
    title: String,
    lines: Vec<Line<'static>>,
    /// A line that must be visible.
    focus: Option<usize>,
    /// Line and column of the cursor.
    cursor: Option<(usize, usize)>,
    /// The first visible line, if no line has the focus.
    scroll: usize,
    help: Vec<Line<'static>>,
    keys: &'static str,
}

impl Page {
    fn line(&mut self, text: impl Into<String>, style: Style) {
        self.lines.push(Line::from(Span::styled(text.into(), style)));
    }

    fn text(&mut self, text: &str, indent: usize, width: usize, style: Style) {
        for line in wrapped(text, width.saturating_sub(indent)) {
            self.line(format!("{}{line}", " ".repeat(indent)), style);
        }
    }

    /// A name and its value, which may take several lines.
    fn row(&mut self, name: &str, value: &str, width: usize, style: Style) {
        for (index, part) in wrapped(value, width.saturating_sub(NAMES)).into_iter().enumerate() {
            let name = if index == 0 { format!("{name:<NAMES$}") } else { " ".repeat(NAMES) };
            self.lines.push(Line::from(vec![Span::styled(name, DIM), Span::styled(part, style)]));
        }
    }
}

/// Draws the state. Returns the first visible line of a scrolled page.
pub(super) fn draw(frame: &mut Frame<'_>, state: &ConsoleState) -> usize {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let inner = width.saturating_sub(2);
    let page = page(state, inner);
    let node = state.facts.node().unwrap_or("not configured");
    let title = format!(" KaaS appliance  {}", page.title);
    let head = format!("{title:<rest$}{node} ", rest = width.saturating_sub(node.chars().count() + 1));
    put(frame, 0, 0, vec![Line::from(Span::styled(head, CHOSEN))]);

    let notice: Vec<_> = state.notice.iter().flat_map(|notice| wrapped(notice, inner)).take(4).collect();
    let mut foot: Vec<Line<'static>> = page.help;
    // Help leaves most of the room to the form.
    foot.truncate((height / 3).max(2));
    foot.extend(notice.into_iter().map(|line| Line::from(Span::styled(line, WORSE))));
    foot.extend(wrapped(page.keys, inner).into_iter().map(|line| Line::from(Span::styled(line, DIM))));
    let room = height.saturating_sub(2 + foot.len() + 1).max(1);
    let last = page.lines.len().saturating_sub(room);
    let from = match page.focus {
        // Some lines below it belong to it.
        Some(focus) => focus.saturating_sub(room * 2 / 3).min(last),
        None => page.scroll.min(last),
    };
    let shown: Vec<_> = page.lines.into_iter().skip(from).take(room).collect();
    put(frame, 1, 2, shown);
    let foot_at = height.saturating_sub(foot.len());
    put(frame, 1, foot_at, foot);
    if let Some((row, column)) = page.cursor
        && row >= from
        && row - from < room
    {
        let (x, y) = (1 + column.min(inner.saturating_sub(1)), 2 + row - from);
        frame.set_cursor_position(Position::new(cut(x), cut(y)));
    }
    from
}

/// Clamps to the range of coordinates. Screens are small.
fn cut(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn put(frame: &mut Frame<'_>, x: usize, y: usize, lines: Vec<Line<'static>>) {
    let area = frame.area();
    let place = Rect::new(cut(x), cut(y), area.width.saturating_sub(cut(x)), cut(lines.len()));
    frame.render_widget(Paragraph::new(lines), place.intersection(area));
}

fn page(state: &ConsoleState, width: usize) -> Page {
    match &state.screen {
        Screen::Status { scroll } => status(state, *scroll, width),
        Screen::Unlock(input) => unlock(state, input, width),
        Screen::Menu { selected } => menu(state, *selected),
        Screen::Form(form) => self::form(form, width),
        Screen::Password { first, second, at_second } => password(first, second, *at_second, width),
        Screen::Confirm(confirm) => self::confirm(confirm, width),
        Screen::Certificates { scroll } => certificates(&state.facts, *scroll, width),
        Screen::Versions { scroll } => {
            let mut page =
                Page { title: "Versions and upgrade state".into(), scroll: *scroll, keys: BACK, ..Page::default() };
            for (name, value) in &state.facts.versions {
                page.row(name, value, width, NORMAL);
            }
            page.line("", NORMAL);
            let how = "A new version comes as a new VM, which gets the data disk of this VM.";
            page.text(how, 0, width, DIM);
            page
        }
        Screen::Logs { lines, scroll } => {
            let mut page = Page { title: "Logs of the agent".into(), scroll: *scroll, keys: BACK, ..Page::default() };
            lines.iter().for_each(|line| page.text(line, 0, width, NORMAL));
            page
        }
    }
}

const BACK: &str = "Up/Down: scroll   Esc: back";

fn status(state: &ConsoleState, scroll: usize, width: usize) -> Page {
    let facts = &state.facts;
    let keys = match facts.access {
        Access::StatusOnly => "Up/Down: scroll",
        _ if facts.status.as_ref().is_some_and(|status| status.phase == Phase::Refused) && facts.unconfigured => {
            "Enter: fix   Up/Down: scroll"
        }
        _ => "Enter: menu   Up/Down: scroll",
    };
    let mut page = Page { title: "Status".into(), scroll, keys, ..Page::default() };
    let Some(status) = &facts.status else {
        page.text("The agent has not reported since power-on.", 0, width, WORSE);
        return page;
    };
    for Headline { name, value, urgency } in headlines(facts, status) {
        let style = match urgency {
            Urgency::Good => GOOD,
            Urgency::Pending => WORSE,
            Urgency::Bad => BAD,
            Urgency::Plain => NORMAL,
        };
        page.text(&format!("{name}: {value}"), 0, width, style);
    }
    page.line("", NORMAL);
    findings(&mut page, status, width);
    details(&mut page, facts, status, width);
    page
}

fn findings(page: &mut Page, status: &Status, width: usize) {
    for Finding { code, severity, subject, seen, action, .. } in status.findings.iter() {
        let (mark, style) = match severity {
            Severity::Error => ("PROBLEM ", BAD),
            Severity::Warning => ("note    ", WORSE),
        };
        page.text(&format!("{mark}{subject}: {seen}"), 0, width, style);
        page.text(&format!("{action}. [{code}]"), 8, width, NORMAL);
    }
    if status.phase == Phase::Refused {
        page.text("The appliance continues once this is corrected.", 0, width, DIM);
    }
    if !status.findings.is_empty() || status.phase == Phase::Refused {
        page.line("", NORMAL);
    }
}

fn details(page: &mut Page, facts: &Facts, status: &Status, width: usize) {
    page.row("image", &status.image, width, NORMAL);
    match (facts.role, &status.cluster) {
        (Some(role), Some(cluster)) => {
            page.row("role", &format!("{} in cluster {cluster}", role.name()), width, NORMAL)
        }
        (Some(role), None) => page.row("role", role.name(), width, NORMAL),
        (None, Some(cluster)) => page.row("cluster name", cluster, width, NORMAL),
        (None, None) => {}
    }
    if let Some(address) = status.address {
        page.row("address", &address.to_string(), width, NORMAL);
    }
    if let Some(swap) = &status.swap {
        page.row("image swap", &swap.to_string(), width, WORSE);
    }
    if let Some(evacuation) = &status.evacuation {
        page.row("evacuation", &evacuation.to_string(), width, WORSE);
    }
    health(page, facts, width);
    if let Some(disk) = &facts.disk {
        page.row("data disk", disk, width, NORMAL);
    }
    if let Some(first) = facts.certificates.first() {
        let style = if first.days < SOON { BAD } else { NORMAL };
        page.row("certificates", &expiry(first.days), width, style);
    }
    if let Some(fingerprint) = &facts.fingerprint {
        page.row("API SHA-256", fingerprint, width, NORMAL);
    }
    if let Some(fingerprints) = &status.fingerprints {
        page.row("cluster CA", &fingerprints.ca.to_string(), width, NORMAL);
        page.row("endpoint", &fingerprints.endpoint.to_string(), width, NORMAL);
    }
}

fn health(page: &mut Page, facts: &Facts, width: usize) {
    let Some((status, health)) = facts.status.as_ref().and_then(|status| Some((status, status.health.as_ref()?)))
    else {
        if let Some(address) = &facts.virtual_address {
            page.row("virtual IP", address, width, NORMAL);
        }
        return;
    };
    if let Some(virtual_address) = &health.virtual_address {
        let holder = if virtual_address.held { "held by this node" } else { "held by another node" };
        page.row("virtual IP", &format!("{} ({holder})", virtual_address.address), width, NORMAL);
    }
    let (word, style) = if health.api { ("serving", GOOD) } else { ("not serving", BAD) };
    page.row(status.api_row(), word, width, style);
    match &health.nodes {
        Some(nodes) => {
            let all: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.ready)).collect();
            members(page, "nodes", &all, ("ready", "NOT READY"), width);
        }
        None => page.row("nodes", "unknown: the API does not answer", width, WORSE),
    }
    if health.etcd.is_empty() {
        return;
    }
    let all: Vec<_> = health.etcd.iter().map(|member| (member.name.as_str(), member.healthy)).collect();
    members(page, "etcd members", &all, ("healthy", "NOT HEALTHY"), width);
}

fn members(page: &mut Page, name: &str, all: &[(&str, bool)], (good, bad): (&str, &str), width: usize) {
    let words: Vec<String> = all.iter().map(|(name, is)| format!("{name} {}", if *is { good } else { bad })).collect();
    let style = if all.iter().all(|(_, is)| *is) { GOOD } else { BAD };
    page.row(name, &words.join(", "), width, style);
}

fn expiry(days: i64) -> String {
    match days {
        ..0 => "one has expired".to_owned(),
        0 => "the first expires today".to_owned(),
        1 => "the first expires in a day".to_owned(),
        days => format!("the first expires in {days} days"),
    }
}

fn unlock(state: &ConsoleState, input: &Input, width: usize) -> Page {
    let mut page = Page { title: "Locked".into(), keys: "Enter: unlock   Esc: back", ..Page::default() };
    page.text("Type the console password of this node.", 0, width, NORMAL);
    page.line("", NORMAL);
    let (text, column) = input.window(width.saturating_sub(NAMES), true, true);
    page.cursor = Some((page.lines.len(), NAMES + column));
    page.row("password", if text.is_empty() { " " } else { &text }, width, NORMAL);
    if state.wait > 0 {
        page.line("", NORMAL);
        let seconds = if state.wait == 1 { "a second".to_owned() } else { format!("{} seconds", state.wait) };
        page.text(&format!("The next try is possible in {seconds}."), 0, width, WORSE);
    }
    page
}

fn menu(state: &ConsoleState, selected: usize) -> Page {
    let keys = "Up/Down: choose   Enter: open   Esc: lock";
    let mut page = Page { title: "Menu".into(), keys, focus: Some(selected), ..Page::default() };
    for (index, item) in state.items().into_iter().enumerate() {
        page.line(format!(" {:<30} ", item.title()), if index == selected { CHOSEN } else { NORMAL });
    }
    page
}

fn form(form: &Form, width: usize) -> Page {
    let keys = "Ctrl-S: save   Up/Down: field   Esc: back";
    let mut page = Page { title: form.scope.title().into(), keys, ..Page::default() };
    for (index, field) in form.fields.iter().enumerate() {
        let focused = index == form.focus;
        let room = width.saturating_sub(KEYS);
        let (text, column) = field.input.window(room, field.hidden(), focused);
        let name = format!("{}{:<rest$}", if field.required { '*' } else { ' ' }, field.property.key, rest = KEYS - 1);
        if focused {
            page.focus = Some(page.lines.len());
            page.cursor = Some((page.lines.len(), KEYS + column));
            page.help = help(field, width);
        }
        let (text, style) = match (&field.before, field.default) {
            _ if !field.input.text().is_empty() => (text, NORMAL),
            (Before::Kept, _) => ("(given; kept)".to_owned(), DIM),
            (_, Some(default)) => (default.to_owned(), DIM),
            _ => (String::new(), NORMAL),
        };
        let name_style = if focused { CHOSEN } else { NORMAL };
        page.lines.push(Line::from(vec![Span::styled(name, name_style), Span::styled(text, style)]));
        for problem in &field.problems {
            page.text(problem, 4, width, BAD);
        }
    }
    page
}

fn help(field: &Field, width: usize) -> Vec<Line<'static>> {
    let property = field.property;
    let need = if field.required { " Required." } else { "" };
    let mut lines = Vec::new();
    for line in wrapped(&format!("{}: {}.{need}", property.label, property.kind.documentation()), width) {
        lines.push(Line::from(Span::styled(line, NORMAL)));
    }
    lines.extend(wrapped(property.description, width).into_iter().map(|line| Line::from(Span::styled(line, DIM))));
    lines
}

fn password(first: &Input, second: &Input, at_second: bool, width: usize) -> Page {
    let keys = "Enter: next, then save   Esc: back";
    let mut page = Page { title: "Console password".into(), keys, ..Page::default() };
    let what = "For the menu of this node's consoles.";
    page.text(what, 0, width, NORMAL);
    page.line("", NORMAL);
    for (name, input, here) in [("new password", first, !at_second), ("once more", second, at_second)] {
        let (text, column) = input.window(width.saturating_sub(NAMES), true, true);
        if here {
            page.cursor = Some((page.lines.len(), NAMES + column));
        }
        page.row(name, if text.is_empty() { " " } else { &text }, width, NORMAL);
    }
    page
}

fn confirm(confirm: &Confirm, width: usize) -> Page {
    let mut page = Page { title: confirm.title.into(), keys: "Enter: do it   Esc: back", ..Page::default() };
    page.text(&confirm.what, 0, width, WORSE);
    page.line("", NORMAL);
    let word = &confirm.word;
    page.text(&format!("To confirm, type: {word}"), 0, width, NORMAL);
    let (text, column) = confirm.typed.window(width.saturating_sub(2), false, true);
    page.cursor = Some((page.lines.len(), 2 + column));
    page.line(format!("> {text}"), NORMAL);
    if confirm.wrong {
        page.text(&format!("That is not {word}. Nothing was done."), 0, width, BAD);
    }
    page
}

fn certificates(facts: &Facts, scroll: usize, width: usize) -> Page {
    let mut page = Page { title: "Certificates".into(), scroll, keys: BACK, ..Page::default() };
    for one in &facts.certificates {
        let style = if one.days < SOON { BAD } else { NORMAL };
        let when = if one.days < 0 { "expired".to_owned() } else { format!("{:>5} days", one.days) };
        page.line(format!("{when:<12}{}", one.name), style);
    }
    page.line("", NORMAL);
    page.text("The node renews its certificates before they expire.", 0, width, DIM);
    if let Some(fingerprint) = &facts.fingerprint {
        page.line("", NORMAL);
        page.row("API SHA-256", fingerprint, width, NORMAL);
    }
    page
}

/// Lines of at most `width` characters, broken at blanks if there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().filter(|c| !c.is_control()).collect();
        let mut line = lines.pop().unwrap_or_default();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() <= width {
            line.push(' ');
        } else if used > 0 {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            // Colons separate the bytes of a fingerprint: break after one.
            let cut = word[..width].iter().rposition(|c| *c == ':').map_or(width, |at| at + 1);
            lines.push(word.drain(..cut).collect());
        }
        line.extend(word);
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_blanks_or_colons() {
        assert_eq!(wrapped("one two three", 9), ["one two", "three"]);
        assert_eq!(wrapped("0123456789abc de", 8), ["01234567", "89abc de"]);
        assert_eq!(wrapped("AA:BB:CC:DD", 8), ["AA:BB:", "CC:DD"]);
        assert_eq!(wrapped("", 8), [""]);
    }
}
