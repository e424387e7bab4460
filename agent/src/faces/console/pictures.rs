//! Pictures of the console for the documentation: the console draws fixed states, and this module writes the screens as SVG.
//! `make screens` renews the committed files. The test fails if they differ.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use contract::finding::Findings;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::facts::Facts;
use super::screens::Item;
use super::state::{ConsoleState, IDLE};
use super::tests::{choose, formed, mending, refused, unlocked};
use super::view;
use crate::status::{Phase, Work};

const COLUMNS: u16 = 80;
const ROWS: u16 = 25;
/// The size of a character, in pixels.
const WIDTH: u16 = 9;
const HEIGHT: u16 = 18;
/// Pixels from the top of a row to the baseline of its text.
const BASELINE: u16 = 13;
/// Pixels around the screen.
const MARGIN: u16 = 12;
const GROUND: &str = "#1b1d1e";
const TEXT: &str = "#d8d8d2";

/// The pictures by their names.
fn screens() -> [(&'static str, ConsoleState); 6] {
    let mut certificates = unlocked();
    choose(&mut certificates, Item::Certificates);
    [
        ("status", ConsoleState::new(formed(), 0, IDLE)),
        ("forming", ConsoleState::new(forming(), 0, IDLE)),
        ("refused", ConsoleState::new(refused(), 0, IDLE)),
        ("menu", unlocked()),
        ("form", mending()),
        ("certificates", certificates),
    ]
}

/// A node that waits for another one to form the cluster.
fn forming() -> Facts {
    let mut facts = formed();
    (facts.settled, facts.fingerprint) = (false, None);
    facts.certificates.clear();
    let status = facts.status.as_mut().unwrap();
    (status.phase, status.health, status.findings) = (Phase::Waiting, None, Findings::default());
    status.work = Some(Work {
        number: 6,
        total: 14,
        step: "meeting the other control-plane nodes".into(),
        waiting: Some("cp3 does not answer".into()),
    });
    facts
}

/// How a character is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    foreground: &'static str,
    ground: &'static str,
    is_bold: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let colour = match cell.fg {
            Color::DarkGray => "#8f8f8a",
            Color::Green => "#5fc75f",
            Color::Yellow => "#e0c04c",
            Color::Red => "#ff7b72",
            _ => TEXT,
        };
        let is_reversed = cell.modifier.contains(Modifier::REVERSED);
        let (foreground, ground) = if is_reversed { (GROUND, colour) } else { (colour, GROUND) };
        Self { foreground, ground, is_bold: cell.modifier.contains(Modifier::BOLD) }
    }
}

fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (buffer.area.width, buffer.area.height);
    let (width, height) = (columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{GROUND}\"/>\n"
    );
    for y in 0..rows {
        let look = |x: u16| Look::of(&buffer[(x, y)]);
        let mut begin = 0;
        while begin < columns {
            let end = (begin..columns).find(|x| look(*x) != look(begin)).unwrap_or(columns);
            let run: String = (begin..end).map(|x| buffer[(x, y)].symbol()).collect();
            svg += &drawn(&run, look(begin), begin, y);
            begin = end;
        }
    }
    svg + "</svg>\n"
}

/// A run of ASCII characters that look the same, from this column of a row.
fn drawn(run: &str, look: Look, column: u16, row: u16) -> String {
    let pixels = |characters: usize| WIDTH * u16::try_from(characters).expect("a row is short");
    let (x, y) = (MARGIN + column * WIDTH, MARGIN + row * HEIGHT);
    let mut svg = String::new();
    // Writing to a String cannot fail.
    if look.ground != GROUND {
        let (width, colour) = (pixels(run.len()), look.ground);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{colour}\"/>");
    }
    let text = run.trim();
    if !text.is_empty() {
        let x = x + pixels(run.len() - run.trim_start().len());
        let (y, width, colour) = (y + BASELINE, pixels(text.len()), look.foreground);
        let weight = if look.is_bold { " font-weight=\"bold\"" } else { "" };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" xml:space=\"preserve\" fill=\"{colour}\"{weight}>{text}</text>"
        );
    }
    svg
}

fn picture(state: &ConsoleState) -> String {
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, ROWS)).unwrap();
    terminal.draw(|frame| _ = view::draw(frame, state)).unwrap();
    svg(terminal.backend().buffer())
}

#[test]
fn committed_pictures_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures/screens");
    let renews = env::var_os("KAAS_SCREENS").is_some_and(|value| value == "write");
    let mut stale = Vec::new();
    for (name, state) in screens() {
        let (file, picture) = (directory.join(format!("console-{name}.svg")), picture(&state));
        if renews {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&file, &picture).unwrap();
        }
        if fs::read_to_string(&file).unwrap_or_default() != picture {
            stale.push(file);
        }
    }
    assert!(stale.is_empty(), "the console draws other screens: `make screens` renews {stale:?}");
}

#[test]
fn runs_keep_place_colour_and_text() {
    let look = Look { foreground: TEXT, ground: GROUND, is_bold: false };
    let plain = drawn("  a <b> ", look, 2, 1);
    let expected = format!(
        "<text x=\"48\" y=\"43\" textLength=\"45\" xml:space=\"preserve\" fill=\"{TEXT}\">a &lt;b&gt;</text>\n"
    );
    assert_eq!(plain, expected);
    assert_eq!(drawn("   ", look, 0, 0), "");
    let reversed = drawn("ab", Look { foreground: GROUND, ground: TEXT, is_bold: true }, 0, 0);
    assert!(reversed.starts_with("<rect x=\"12\" y=\"12\" width=\"18\" height=\"18\""), "{reversed}");
    assert!(reversed.contains("font-weight=\"bold\">ab</text>"), "{reversed}");
}
