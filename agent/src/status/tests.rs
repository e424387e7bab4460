use contract::codes;
use contract::deployer::Fingerprint;
use contract::statement::Statement;

use super::*;

fn formed() -> Status {
    let node = |name: &str, ready| Node { name: name.into(), ready };
    let member = |name: &str, healthy| Member { name: name.into(), healthy };
    Status {
        image: "kaas-control-plane 0.1.0 (development image)".into(),
        node: Some("node1".into()),
        address: Some([10, 0, 0, 11].into()),
        cluster: Some("lab".into()),
        phase: Phase::Done,
        health: Some(Health {
            api: true,
            nodes: Some(vec![node("node1", true), node("node2", false)]),
            etcd: vec![member("node1", true), member("node2", false)],
            virtual_address: Some(VirtualAddress { address: [10, 0, 0, 10].into(), held: true }),
        }),
        ..Status::default()
    }
}

fn refused() -> Status {
    let mut findings = Findings::default();
    findings.push(codes::SECRET_WEAK.finding("deployment-secret", "it has 40 bits", "Use at least 128 bits"));
    findings.push(codes::DNS_MANY.finding("dns-servers", "four are given", "Give at most three"));
    Status { image: "image".into(), phase: Phase::Refused, findings, ..Status::default() }
}

#[test]
fn the_page_of_a_formed_node() {
    insta::assert_snapshot!(formed().page());
}

#[test]
fn the_page_of_bad_input() {
    insta::assert_snapshot!(refused().page());
}

#[test]
fn lasting_finding_is_shown_once_with_others() {
    let root = tempfile::tempdir().unwrap();
    let reporter = Reporter::new(root.path(), Status::default());
    let of = |subject: &str| Findings::from(codes::DISK_READ_ONLY.finding(subject, "it refuses writes", "Wait"));
    let mut both = of("other");
    both.extend(of("/var"));
    reporter.set_lasting(of("/var"));
    for _ in 0..2 {
        reporter.update(|status| status.findings = of("other"));
        reporter.set_lasting(of("/var"));
        assert_eq!(reporter.status().findings, both);
        reporter.update(|status| status.refusals += 1);
        assert_eq!(reporter.status().findings, both);
    }
    reporter.set_lasting(Findings::default());
    assert_eq!(reporter.status().findings, of("other"));
}

#[test]
fn readiness_depends_on_own_api_and_node() {
    let mut status = formed();
    assert!(status.is_ready());
    assert_eq!(status.summary(), "ready");
    status.node = Some("node2".into());
    assert!(!status.is_ready());
    assert_eq!(status.summary(), "running, but not ready");
    let mut status = formed();
    status.health.as_mut().unwrap().api = false;
    assert!(!status.is_ready());
}

#[test]
fn summary_names_the_step_and_its_wait() {
    let work = Work { number: 3, total: 9, step: "starting etcd".into(), waiting: None };
    let mut status = Status { phase: Phase::Working, work: Some(work), ..Status::default() };
    assert_eq!(status.summary(), "starting etcd (3/9)");
    status.work.as_mut().unwrap().waiting = Some("waiting for a leader".into());
    assert_eq!(status.summary(), "starting etcd (3/9): waiting for a leader");
    assert_eq!(refused().summary(), "stopped: one problem must be corrected");
}

#[test]
fn foreign_answer_cannot_forge_a_console_line() {
    let root = tempfile::tempdir().unwrap();
    let console = root.path().join("dev/console");
    fs::create_dir(root.path().join("dev")).unwrap();
    fs::write(&console, "").unwrap();
    let forged = Fingerprints { ca: Fingerprint::of(b"another one's"), endpoint: Fingerprint::of(b"another one's") };
    let waiting = Some(format!("unknown variant `\n{}\n`\u{1b}[2J", forged.line()));
    let work = Work { number: 3, total: 9, step: "meeting the others".into(), waiting };
    let reporter = Reporter::new(root.path(), Status::default());
    reporter.update(|status| *status = Status { phase: Phase::Waiting, work: Some(work.clone()), ..Status::default() });
    let said = fs::read_to_string(&console).unwrap();
    assert!(said.contains("meeting the others (3/9): unknown variant"), "{said}");
    assert_eq!(Fingerprints::last_said(&said), None, "{said}");
    let kept = Status::read(root.path()).unwrap().work.unwrap().waiting.unwrap();
    assert!(!kept.contains(char::is_control), "{kept}");
    let of_a_file = Status { phase: Phase::Waiting, work: Some(work), ..Status::default() };
    assert!(!of_a_file.summary().contains(char::is_control));
}

#[test]
fn kernel_line_cannot_hide_the_join_statement() {
    let root = tempfile::tempdir().unwrap();
    let console = root.path().join("dev/console");
    fs::create_dir(root.path().join("dev")).unwrap();
    fs::write(&console, "").unwrap();
    let reporter = Reporter::new(root.path(), Status::default());
    let key = Some("0123456789abcdef".to_owned());
    reporter
        .update(|status| *status = Status { phase: Phase::Done, role: Some(Role::Worker), key, ..Status::default() });
    let said = fs::read_to_string(&console).unwrap();
    let done = Statement::last_said(&said).unwrap();
    assert_eq!(done.phase, Phase::Done);
    let (line, port) = (done.line(), "[   93.1] cni0: port 1(veth1) entered forwarding state\r\n");
    for (at, _) in said.match_indices(&line) {
        let (before, after) = said.split_at(at + line.len() / 2);
        assert_eq!(Statement::last_said(&format!("{before}{port}{after}")).as_ref(), Some(&done));
    }
    assert!(!said.trim_end().ends_with(&line), "what stands last is how the node is: {said}");
}

#[test]
fn file_is_written_for_each_change() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Status::read(root.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    let reporter = Reporter::new(root.path(), Status::default());
    reporter.update(|status| *status = formed());
    assert_eq!(Status::read(root.path()).unwrap(), formed());
    reporter.update(|status| status.phase = Phase::Waiting);
    assert_eq!(Status::read(root.path()).unwrap().phase, Phase::Waiting);
}

#[test]
fn workers_page_has_clusters_api_and_no_etcd() {
    let mut status = Status { role: Some(Role::Worker), ..formed() };
    let health = status.health.as_mut().unwrap();
    (health.etcd, health.virtual_address) = (Vec::new(), None);
    let page = status.page();
    assert!(page.contains("Kubernetes API") && !page.contains("on this node") && !page.contains("etcd"), "{page}");
}
