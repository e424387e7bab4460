//! Screens as reviewed, and the effects of keys, without a terminal.

use contract::codes;
use contract::finding::Findings;
use contract::node::VirtualAddress;
use contract::properties;
use contract::role::Role;
use contract::secret::Secret;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::events::{Effect, Event, Outcome};
use super::facts::{Access, Certificate, Facts};
use super::form::Scope;
use super::screens::{Item, Screen};
use super::state::{ConsoleState, IDLE};
use super::view;
use crate::status::{Health, Member, Phase, Status};

const SECRET: &str = "9f86d081884c7d659a2feaa0c55ad015";

pub(super) fn formed() -> Facts {
    let node = |name: &str, ready| crate::cluster::kubernetes::api::Node { name: name.into(), ready };
    let member = |name: &str, healthy| Member { name: name.into(), healthy };
    let mut findings = Findings::default();
    findings.push(codes::DISK_SPARE.finding("/dev/sdc", "it is not used", "Detach it if nothing needs it"));
    Facts {
        status: Some(Status {
            image: "kaas-control-plane 0.1.0 (development image)".into(),
            node: Some("cp1".into()),
            address: Some([10, 20, 30, 11].into()),
            cluster: Some("control".into()),
            phase: Phase::Done,
            findings,
            health: Some(Health {
                api: true,
                nodes: Some(vec![node("cp1", true), node("cp2", true), node("cp3", false)]),
                etcd: ["cp1", "cp2", "cp3"].map(|name| member(name, name != "cp3")).to_vec(),
                virtual_address: Some(VirtualAddress { address: [10, 20, 30, 10].into(), held: true }),
            }),
            ..Status::default()
        }),
        access: Access::Locked,
        settled: true,
        roles: Some(Role::ControlPlane.into()),
        role: Some(Role::ControlPlane),
        versions: vec![("image", "kaas-control-plane 0.1.0".into()), ("Kubernetes", "1.36.3".into())],
        virtual_address: Some("10.20.30.10".into()),
        api: Some("https://10.20.30.10:6443".into()),
        control_nodes: 3,
        ssh_keys: Some(2),
        certificates: vec![
            Certificate { name: "apiserver.crt".into(), days: 364 },
            Certificate { name: "ca.crt".into(), days: 3649 },
        ],
        fingerprint: Some(["AB"; 32].join(":")),
        disk: Some("3600 MiB of 3900 MiB free".into()),
        ..Facts::default()
    }
}

pub(super) fn refused() -> Facts {
    let mut findings = Findings::default();
    findings.push(codes::GATEWAY_OFF_SUBNET.finding(
        "gateway",
        "the gateway 192.168.99.1 is not in the node's subnet 10.20.30.0/24",
        "Correct it, or the prefix length of this VM's address",
    ));
    let image = "kaas-control-plane 0.1.0 (development image)".into();
    let status = Status { image, phase: Phase::Refused, findings, ..Status::default() };
    Facts {
        status: Some(status),
        access: Access::Open,
        unconfigured: true,
        roles: Some(Role::ControlPlane.into()),
        role: Some(Role::ControlPlane),
        ..Facts::default()
    }
}

fn present() -> Vec<(&'static properties::Property, Secret)> {
    let values = [
        ("node-name", "cp1"),
        ("address", "10.20.30.11/24"),
        ("gateway", "192.168.99.1"),
        ("control-nodes", "cp1=10.20.30.11"),
        ("deployment-secret", SECRET),
        ("http-proxy", "http://me:hunter2@proxy.example.com:3128"),
    ];
    values.map(|(key, text)| (properties::find(key).unwrap(), Secret::new(text.to_owned()))).to_vec()
}

fn screen(state: &ConsoleState, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| _ = view::draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let text: Vec<String> = (0..rows).map(row).collect();
    assert!(text.iter().all(|line| line.is_ascii()), "a glyph that a console may lack");
    text.join("\n")
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn press(state: &mut ConsoleState, codes: &[KeyCode]) -> Option<Effect> {
    codes.iter().fold(None, |_, code| state.update(key(*code)))
}

fn type_in(state: &mut ConsoleState, text: &str) {
    text.chars().for_each(|character| drop(state.update(key(KeyCode::Char(character)))));
}

pub(super) fn unlocked() -> ConsoleState {
    let mut state = ConsoleState::new(formed(), 0, IDLE);
    press(&mut state, &[KeyCode::Enter]);
    type_in(&mut state, "right");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Effect::Unlock(Secret::new("right".into()))));
    state.update(Event::Outcome(Outcome::Unlocked));
    state
}

pub(super) fn choose(state: &mut ConsoleState, item: Item) -> Option<Effect> {
    let at = state.items().iter().position(|other| *other == item).expect("on the menu");
    press(state, &[KeyCode::Home]);
    press(state, &vec![KeyCode::Down; at]);
    press(state, &[KeyCode::Enter])
}

pub(super) fn mending() -> ConsoleState {
    let mut state = ConsoleState::new(refused(), 0, IDLE);
    press(&mut state, &[KeyCode::Enter]);
    assert_eq!(choose(&mut state, Item::Form(Scope::All)), Some(Effect::Present(Scope::All)));
    state.update(Event::Outcome(Outcome::Present(Scope::All, present())));
    state
}

#[test]
fn the_status_of_a_formed_node() {
    let state = ConsoleState::new(formed(), 0, IDLE);
    insta::assert_snapshot!("status_80x25", screen(&state, 80, 25));
    insta::assert_snapshot!("status_40x20", screen(&state, 40, 20));
}

#[test]
fn status_page_of_a_node_with_problems() {
    let state = ConsoleState::new(refused(), 0, IDLE);
    insta::assert_snapshot!("refused_80x25", screen(&state, 80, 25));
    insta::assert_snapshot!("refused_40x20", screen(&state, 40, 20));
}

#[test]
fn the_menu_of_a_formed_node() {
    insta::assert_snapshot!("menu_80x25", screen(&unlocked(), 80, 25));
    insta::assert_snapshot!("menu_40x20", screen(&unlocked(), 40, 20));
}

#[test]
fn form_shows_problems_and_no_secrets() {
    let state = mending();
    for (columns, rows) in [(80, 25), (40, 20)] {
        let text = screen(&state, columns, rows);
        insta::assert_snapshot!(format!("form_{columns}x{rows}"), text);
    }
    // No part of it shows a secret.
    let mut state = mending();
    for _ in properties::table() {
        let text = screen(&state, 100, 60);
        assert!(!text.contains(&SECRET[..6]) && !text.contains("hunter2"), "{text}");
        press(&mut state, &[KeyCode::Down]);
    }
}

#[test]
fn every_changeable_property_has_a_form() {
    let forms = [Scope::Network, Scope::Time, Scope::Ssh, Scope::Site];
    for (role, property) in
        Role::ALL.into_iter().flat_map(|role| properties::table().iter().map(move |row| (role, row)))
    {
        let facts = Facts { roles: Some(role.into()), role: Some(role), ..formed() };
        let has = |scope: &&Scope| {
            let form = super::form::Form::new(**scope, &facts, &[], &Findings::default());
            form.fields.iter().any(|field| field.property == property)
        };
        let typed = property.key != properties::CONSOLE_PASSWORD_HASH;
        let expected = property.changeable && typed && property.need(role).is_some();
        assert_eq!(forms.iter().filter(has).count(), usize::from(expected), "{} in {role}", property.key);
    }
}

#[test]
fn only_changed_properties_are_saved() {
    let mut state = mending();
    state.update(Event::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    type_in(&mut state, "10.20.30.1");
    let save = KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL);
    let wanted = state.update(Event::Key(save));
    assert_eq!(wanted, Some(Effect::Change(vec![("gateway", Secret::new("10.20.30.1".into()))])));
    state.update(Event::Outcome(Outcome::Done("Saved.".into())));
    assert!(matches!(state.screen, Screen::Status { .. }));
    assert_eq!(state.notice.as_deref(), Some("Saved."));
}

#[test]
fn password_in_an_address_is_always_hidden() {
    let mut form = super::form::Form::new(Scope::Site, &formed(), &[], &Findings::default());
    let mut hidden = |key: &str, text: &str| {
        form.focus = form.fields.iter().position(|field| field.property.key == key).unwrap();
        form.focused().input = super::input::Input::new(text);
        form.focused().hidden()
    };
    for typed in ["h", "http://me:h", "http://me:123456", "http://me:hunter2@proxy.example.com:3128"] {
        assert!(hidden(properties::HTTP_PROXY, typed) && hidden(properties::SNAPSHOT_TARGET, typed), "{typed}");
    }
    assert!(!hidden(properties::REGISTRY_MIRROR, "http://me:hunter2"), "it takes no password");
}

#[test]
fn refused_changes_stay_in_the_form() {
    let mut state = mending();
    let mut findings = Findings::default();
    findings.push(codes::PROPERTY_MALFORMED.finding("timeout-factor", "it is no number", "Give one"));
    findings.push(codes::ENVIRONMENT_ABSENT.finding("OVF environment", "there is none", "Give one"));
    state.update(Event::Outcome(Outcome::Refused(findings)));
    insta::assert_snapshot!("form_refused_80x25", screen(&state, 80, 25));
}

#[test]
fn nothing_opens_without_the_password() {
    let mut state = ConsoleState::new(formed(), 0, IDLE);
    press(&mut state, &[KeyCode::Enter]);
    type_in(&mut state, "wrong");
    press(&mut state, &[KeyCode::Enter]);
    state.update(Event::Outcome(Outcome::Wait(4)));
    let text = screen(&state, 80, 25);
    assert!(text.contains("not accepted") && text.contains("possible in 4 seconds"), "{text}");
    assert!(!text.contains("wrong"));
    // A password typed in the meantime is not tried.
    type_in(&mut state, "right");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    (0..4).for_each(|_| drop(state.update(Event::Tick)));
    type_in(&mut state, "right");
    assert!(matches!(press(&mut state, &[KeyCode::Enter]), Some(Effect::Unlock(_))));
}

#[test]
fn a_console_without_a_password_shows_status_only() {
    let facts = Facts { access: Access::StatusOnly, ..formed() };
    let mut state = ConsoleState::new(facts, 0, IDLE);
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    assert!(matches!(state.screen, Screen::Status { .. }) && screen(&state, 80, 25).contains("status only"));
}

#[test]
fn idle_console_locks_itself() {
    let mut state = unlocked();
    (0..299).for_each(|_| drop(state.update(Event::Tick)));
    assert!(state.unlocked);
    press(&mut state, &[KeyCode::Down]);
    (0..300).for_each(|_| drop(state.update(Event::Tick)));
    assert!(!state.unlocked && matches!(state.screen, Screen::Status { .. }));
}

#[test]
fn open_form_closes_once_access_needs_a_password() {
    let mut state = mending();
    state.update(Event::Facts(Box::new(formed())));
    assert!(matches!(state.screen, Screen::Status { .. }));
    // An unlocked console stays where it is.
    let mut state = unlocked();
    state.update(Event::Facts(Box::new(formed())));
    assert!(matches!(state.screen, Screen::Menu { .. }));
}

#[test]
fn powering_off_needs_the_name_of_the_node() {
    let mut state = unlocked();
    choose(&mut state, Item::PowerOff);
    type_in(&mut state, "cp2");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    insta::assert_snapshot!("confirm_80x25", screen(&state, 80, 25));
    type_in(&mut state, "cp1");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Effect::PowerOff));
}

/// A VM with the disk of a node whose former VM was cut off.
fn held_elsewhere(code: &codes::Code) -> Facts {
    let mut facts = refused();
    let seen = "it is the data disk of node cp1 of cluster control, held by another VM";
    let finding = code.finding("/dev/sdb", seen, "Attach it to that VM again");
    facts.status.as_mut().unwrap().findings = finding.into();
    facts
}

#[test]
fn takeover_of_a_disk_needs_its_nodes_name() {
    let mut state = ConsoleState::new(held_elsewhere(&codes::DISK_HELD_ELSEWHERE), 0, IDLE);
    press(&mut state, &[KeyCode::Enter]);
    insta::assert_snapshot!("take_over_menu_80x25", screen(&state, 80, 25));
    assert_eq!(choose(&mut state, Item::ForceAdopt), Some(Effect::LookAtForceAdopt));
    let words = "This VM takes over the data disk of node cp1 of cluster control.".to_owned();
    state.update(Event::Outcome(Outcome::ForceAdopt { words, word: "cp1 --downgrade".into() }));
    type_in(&mut state, "control");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    for (columns, rows) in [(80, 25), (40, 20)] {
        insta::assert_snapshot!(format!("take_over_{columns}x{rows}"), screen(&state, columns, rows));
    }
    type_in(&mut state, "cp1 --downgrade");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Effect::ForceAdopt("cp1 --downgrade".into())));
}

#[test]
fn takeover_is_offered_if_the_refusal_is_overrulable() {
    let overruled =
        [&codes::DISK_OTHER_IMAGE, &codes::IMAGE_DOWNGRADE, &codes::IMAGE_FROM_VERSION, &codes::IMAGE_PUBLISHER];
    for code in overruled {
        let state = ConsoleState::new(held_elsewhere(code), 0, IDLE);
        assert!(state.items().contains(&Item::ForceAdopt), "{}", code.code);
    }
    for code in [&codes::DISK_STALE, &codes::DISK_CLONED, &codes::DISK_SUPERSEDED, &codes::DISK_FOREIGN] {
        let state = ConsoleState::new(held_elsewhere(code), 0, IDLE);
        assert!(!state.items().contains(&Item::ForceAdopt), "{}", code.code);
    }
    assert!(!unlocked().items().contains(&Item::ForceAdopt) && !mending().items().contains(&Item::ForceAdopt));
}

#[test]
fn reset_of_the_last_node_needs_both_names() {
    let mut state = unlocked();
    assert_eq!(choose(&mut state, Item::Reset), Some(Effect::LookAtReset));
    let (node, cluster) = ("cp1".to_owned(), Some("control".to_owned()));
    let words = "Everything on the data disk is erased. THIS ENDS CLUSTER control.".to_owned();
    state.update(Event::Outcome(Outcome::Reset { words, node: node.clone(), cluster: cluster.clone() }));
    type_in(&mut state, "cp1");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    insta::assert_snapshot!("reset_80x25", screen(&state, 80, 25));
    type_in(&mut state, "cp1 control");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Effect::Reset { node, cluster }));
}

#[test]
fn new_password_is_typed_twice_and_hidden() {
    let mut state = unlocked();
    choose(&mut state, Item::Password);
    type_in(&mut state, "correct horse");
    press(&mut state, &[KeyCode::Enter]);
    type_in(&mut state, "another horse");
    assert!(!screen(&state, 80, 25).contains("horse"));
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    assert!(screen(&state, 80, 25).contains("not the same"));
    for _ in 0..2 {
        type_in(&mut state, "correct horse");
        let wanted = press(&mut state, &[KeyCode::Enter]);
        if let Some(effect) = wanted {
            assert_eq!(effect, Effect::SetPassword(Secret::new("correct horse".into())));
            return;
        }
    }
    panic!("not set");
}

#[test]
fn only_a_locked_console_offers_a_shell() {
    let mut state = unlocked();
    assert!(state.items().contains(&Item::Shell));
    assert!(!mending().items().contains(&Item::Shell));
    for item in state.items() {
        let mut other = state.clone();
        let wanted = choose(&mut other, item);
        assert!(wanted.is_some() || !matches!(other.screen, Screen::Menu { .. }), "{item:?} does nothing");
    }
    assert_eq!(choose(&mut state, Item::Shell), Some(Effect::Shell));
}

#[test]
fn every_size_of_a_terminal_can_be_drawn() {
    let logs = |mut state: ConsoleState| {
        state.update(Event::Outcome(Outcome::Logs(vec!["a line of the journal".into(); 500])));
        state
    };
    for state in [
        ConsoleState::new(formed(), 0, IDLE),
        ConsoleState::new(Facts::default(), 3, IDLE),
        unlocked(),
        mending(),
        logs(unlocked()),
    ] {
        for (columns, rows) in [(1, 1), (2, 3), (10, 5), (40, 12), (80, 25), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| _ = view::draw(frame, &state)).unwrap();
        }
    }
}

#[test]
fn a_page_scrolled_beyond_its_end_comes_back() {
    let mut state = unlocked();
    state.update(Event::Outcome(Outcome::Logs((0..100).map(|line| format!("line {line}")).collect())));
    let mut terminal = Terminal::new(TestBackend::new(80, 25)).unwrap();
    let mut from = 0;
    terminal.draw(|frame| from = view::draw(frame, &state)).unwrap();
    state.scrolled_to(from);
    assert!(screen(&state, 80, 25).contains("line 99"));
    press(&mut state, &[KeyCode::Up]);
    assert!(!screen(&state, 80, 25).contains("line 99"));
}

#[test]
fn idle_shell_stays_behind_the_lock() {
    let mut state = unlocked();
    assert_eq!(choose(&mut state, Item::Shell), Some(Effect::Shell));
    state.update(Event::Outcome(Outcome::ShellLocked));
    assert!(!state.unlocked && matches!(state.screen, Screen::Status { .. }));
    assert!(screen(&state, 80, 25).contains("A shell still runs behind the lock"));
    press(&mut state, &[KeyCode::Enter]);
    assert!(matches!(state.screen, Screen::Unlock(_)));
    state.update(Event::Outcome(Outcome::Unlocked));
    assert_eq!(choose(&mut state, Item::Shell), Some(Effect::Shell));
    state.update(Event::Outcome(Outcome::ShellEnded("The shell has ended.".into())));
    assert!(state.unlocked && matches!(state.screen, Screen::Menu { .. }));
}

#[test]
fn ctrl_c_ends_nothing_on_any_screen() {
    let mut locked = ConsoleState::new(formed(), 0, IDLE);
    press(&mut locked, &[KeyCode::Enter]);
    for mut state in [ConsoleState::new(formed(), 0, IDLE), locked, unlocked(), mending()] {
        let before = screen(&state, 80, 25);
        let interrupt = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(state.update(interrupt), None);
        assert_eq!(screen(&state, 80, 25), before);
    }
}

#[test]
fn node_with_damaged_configuration_can_be_reset() {
    let mut facts = refused();
    (facts.access, facts.damaged, facts.unconfigured) = (Access::ResetOnly, true, false);
    let mut state = ConsoleState::new(facts, 0, IDLE);
    press(&mut state, &[KeyCode::Enter]);
    assert_eq!(state.items(), [Item::Reset]);
    assert_eq!(choose(&mut state, Item::Reset), Some(Effect::LookAtReset));
    let (node, words) = ("cp1".to_owned(), "Everything on the data disk is erased.".to_owned());
    state.update(Event::Outcome(Outcome::Reset { words, node: node.clone(), cluster: None }));
    type_in(&mut state, "cp2");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), None);
    type_in(&mut state, "cp1");
    assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Effect::Reset { node, cluster: None }));
}

#[test]
fn node_with_a_damaged_record_has_no_form() {
    let mut state = unlocked();
    (state.facts.damaged, state.facts.settled) = (true, false);
    let items = state.items();
    assert!(!items.iter().any(|item| matches!(item, Item::Form(_) | Item::Password)), "{items:?}");
    assert!(items.contains(&Item::Shell) && items.contains(&Item::Reset));
}

#[test]
fn notice_distinguishes_missing_password_and_pending_search() {
    let facts = Facts { access: Access::StatusOnly, unconfigured: true, ..Facts::default() };
    for (facts, said) in
        [(facts, "Try again in a moment"), (Facts { access: Access::StatusOnly, ..formed() }, "No console password")]
    {
        let mut state = ConsoleState::new(facts, 0, IDLE);
        press(&mut state, &[KeyCode::Enter]);
        assert!(state.notice.unwrap().contains(said));
    }
}
