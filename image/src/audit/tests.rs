use std::path::Path;
use std::time::SystemTime;

use super::go::Database;
use super::judged::Judgement;
use super::{Report, Row, Status};
use crate::component::go_program::GoProgram;
use crate::component::go_program::tests::program;

/// A database with an advisory of a function, one of a package, one of a method, one of the library and a withdrawn one.
fn database(directory: &Path) -> Database {
    let advisory = |id: &str, module: &str, events: &str, imports: &str, more: &str| {
        let text = format!(
            r#"{{"id":"{id}","aliases":["CVE-{id}"],"summary":"s"{more},"affected":[{{"package":{{"name":"{module}","ecosystem":"Go"}},
            "ranges":[{{"type":"SEMVER","events":[{events}]}}],"ecosystem_specific":{{"imports":[{imports}]}}}}]}}"#
        );
        std::fs::write(directory.join(format!("{id}.json")), text).unwrap();
    };
    let (always, until) = (r#"{"introduced":"0"}"#, r#"{"introduced":"0"},{"fixed":"1.2.0"}"#);
    advisory("GO-1", "b.org/b", until, r#"{"path":"b.org/b","symbols":["Parse"]}"#, "");
    advisory("GO-2", "b.org/b", always, r#"{"path":"b.org/b/other"}"#, "");
    advisory(
        "GO-3",
        "b.org/b",
        r#"{"introduced":"0"},{"fixed":"1.0.0"},{"introduced":"1.1.0"},{"fixed":"1.1.1"}"#,
        "",
        "",
    );
    advisory(
        "GO-4",
        "stdlib",
        r#"{"introduced":"1.27.0-0"},{"fixed":"1.27.3"}"#,
        r#"{"path":"net/http","symbols":["Server.Serve"]}"#,
        "",
    );
    advisory("GO-5", "b.org/b", always, "", r#","withdrawn":"2026-01-01T00:00:00Z""#);
    advisory("GO-6", "b.org/b", always, r#"{"path":"b.org/b","symbols":["Parse"],"goos":["windows"]}"#, "");
    Database::read(directory, "v0").unwrap()
}

/// The advisories of a program that was built with a version of Go, and has a module b.org/b and functions.
fn found(database: &Database, go: &str, version: &str, functions: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p");
    std::fs::write(&file, program(&format!("dep\tb.org/b\t{version}\th1:b=\n"), functions)).unwrap();
    let mut rows = database.rows("part", go, &[GoProgram::read(&file).unwrap()]);
    rows.sort();
    rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn advisories_of_modules_depend_on_linked_functions() {
    let files = tempfile::tempdir().unwrap();
    let database = database(files.path());
    let found = |functions: &[&str]| found(&database, "1.27.2", "v1.1.1", functions);
    assert_eq!(found(&["runtime.main", "b.org/b.Parse", "net/http.(*Server).Serve"]), "GO-1 GO-4");
    assert_eq!(found(&["runtime.main", "b.org/b/other.F"]), "GO-2");
    assert_eq!(found(&["runtime.main"]), "");
    // Without a table of functions nothing is ruled out.
    assert_eq!(found(&[]), "GO-1 GO-2 GO-4 GO-6");
}

#[test]
fn advisories_of_etcds_repository_concern_its_module() {
    let files = tempfile::tempdir().unwrap();
    let text = r#"{"id":"GO-7","affected":[{"package":{"name":"go.etcd.io/etcd/v3"},"ranges":[{"events":[{"introduced":"0"},{"fixed":"3.6.9"}]}]}]}"#;
    std::fs::write(files.path().join("GO-7.json"), text).unwrap();
    let database = Database::read(files.path(), "v0").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for (version, expected) in [("v3.6.8", 1), ("v3.6.9", 0)] {
        let lines = format!("dep\tgo.etcd.io/etcd/server/v3\t{version}\th1:b=\n");
        std::fs::write(file.path(), program(&lines, &[])).unwrap();
        let rows = database.rows("etcd", "1.27.3", &[GoProgram::read(file.path()).unwrap()]);
        assert_eq!(rows.len(), expected, "{version}");
    }
}

#[test]
fn an_old_database_is_a_row() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("GO-8.json"), r#"{"id":"GO-8","affected":[]}"#).unwrap();
    let old = |version: &str, now: &str| {
        let database = Database::read(files.path(), version).unwrap();
        database.is_old(humantime::parse_rfc3339(now).unwrap()).map(|row| row.status)
    };
    let version = "v0.0.0-20261105123456-abcdefabcdef";
    assert_eq!(old(version, "2026-12-20T00:00:00Z"), None);
    assert_eq!(old(version, "2026-12-21T00:00:00Z"), Some(Status::Expired));
    assert_eq!(old("v0", "2026-12-01T00:00:00Z"), Some(Status::Expired));
}

#[test]
fn versions_are_affected_from_introduction_to_fix() {
    let files = tempfile::tempdir().unwrap();
    let database = database(files.path());
    let found = |version: &str, go: &str| found(&database, go, version, &[]);
    assert_eq!(found("v0.9.0", "1.27.3"), "GO-1 GO-2 GO-3 GO-6");
    assert_eq!(found("v1.0.0", "1.27.3"), "GO-1 GO-2 GO-6");
    assert_eq!(found("v1.1.1-0.20260101000000-abcdefabcdef", "1.27.2"), "GO-1 GO-2 GO-3 GO-4 GO-6");
    assert_eq!(found("v2.0.0+incompatible", "1.26.8"), "GO-2 GO-6");
    assert_eq!(found("(devel)", "1.27.3"), "GO-1 GO-2 GO-3 GO-6");
}

fn judgement(advisory: &str, component: &str, expires: &str) -> Judgement {
    Judgement {
        advisories: vec![advisory.to_owned()],
        components: vec![component.to_owned()],
        reason: "r".to_owned(),
        date: "2026-01-01".to_owned(),
        expires: expires.to_owned(),
    }
}

#[test]
fn unjudged_and_expired_advisories_differ() {
    let now: SystemTime = humantime::parse_rfc3339("2026-06-01T00:00:00Z").unwrap();
    let judged = |judgements: &[Judgement]| {
        let row = |id: &str| Row {
            component: "part".to_owned(),
            id: id.to_owned(),
            aliases: vec![format!("CVE-{id}")],
            ..Row::default()
        };
        let mut report = Report { rows: vec![row("GO-1"), row("GO-2")], ..Report::default() };
        report.judge(judgements, now);
        report
    };
    let open = judged(&[judgement("GO-1", "part", "2027-01-01"), judgement("GO-2", "other", "2027-01-01")]);
    assert_eq!((open.count(Status::Unjudged), open.count(Status::Judged)), (1, 1));
    assert!(open.fails(true) && open.fails(false));
    assert_eq!(open.rows[0].id, "GO-2", "open ones come first");
    assert_eq!(open.rows[1].text, "until 2027-01-01: r");
    // An alias names it as well; an expired judgement fails, but not where only pinned data counts.
    let all = [judgement("CVE-GO-1", "part", "2027-01-01"), judgement("GO-2", "part", "2026-05-01")];
    let expired = judged(&all);
    assert_eq!((expired.count(Status::Expired), expired.fails(true), expired.fails(false)), (1, false, true));
    assert!(!judged(&[&all[..], &[judgement("GO-2", "part", "2026-12-01")]].concat()).fails(false));
}
