use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use super::go::Database;
use super::judged::Judgement;
use super::{Report, Status};
use crate::component::GoModule;
use crate::component::toolchain::Pin;
use crate::go_program::GoProgram;
use crate::go_program::tests::program;

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

fn module(directory: &Path, go: &str) -> GoModule {
    std::fs::write(directory.join("go.mod"), "module m\n\nrequire (\n\tb.org/b v1.1.1\n\tc.org/c v1.0.0\n)\n").unwrap();
    let go = Pin { version: go.to_owned(), sum: String::new() };
    GoModule {
        go,
        directory: directory.to_owned(),
        modfile: None,
        cgo: false,
        stamped: false,
        tags: Vec::new(),
        ldflags: Vec::new(),
        packages: Vec::new(),
    }
}

fn found(rows: Vec<super::Row>) -> Vec<(String, Status)> {
    rows.into_iter().map(|row| (row.advisory.id, row.status)).collect()
}

#[test]
fn advisories_of_modules_are_decided_by_the_linked_functions() {
    let (files, sources) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, module) = (database(files.path()), module(sources.path(), "1.27.2"));
    // Not built: each advisory of a required version is open.
    let rows = found(database.decide("part", &module, None).unwrap());
    assert_eq!(rows, ["GO-1", "GO-2", "GO-6", "GO-4"].map(|id| (id.to_owned(), Status::Undecided)));
    // Built: what the linker left out is decided.
    let built = |functions: &[&str]| {
        let file = sources.path().join("p");
        std::fs::write(&file, program("dep\tb.org/b\tv1.1.1\th1:b=\n", functions)).unwrap();
        let rows = found(database.decide("part", &module, Some(&[GoProgram::read(&file).unwrap()])).unwrap());
        ["GO-1", "GO-2", "GO-6", "GO-4"].map(|id| rows.iter().find(|(own, _)| own == id).unwrap().1)
    };
    let (linked, left_out) = (Status::Unjudged, Status::NotLinked);
    assert_eq!(
        built(&["runtime.main", "b.org/b.Parse", "net/http.(*Server).Serve"]),
        [linked, left_out, left_out, linked]
    );
    assert_eq!(built(&["runtime.main", "b.org/b/other.F"]), [left_out, linked, left_out, left_out]);
    // Without a table of functions nothing is ruled out.
    assert_eq!(built(&[]), [linked; 4]);
}

#[test]
fn a_version_is_affected_from_its_introduction_to_its_fix() {
    let (files, sources) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = database(files.path());
    let ids = |version: &str, go: &str| {
        let module = module(sources.path(), go);
        let text = format!("module m\n\nrequire b.org/b {version}\n");
        std::fs::write(sources.path().join("go.mod"), text).unwrap();
        let rows = database.decide("part", &module, None).unwrap();
        rows.iter().map(|row| row.advisory.id.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids("v0.9.0", "1.27.3"), "GO-1 GO-2 GO-3 GO-6");
    assert_eq!(ids("v1.0.0", "1.27.3"), "GO-1 GO-2 GO-6");
    assert_eq!(ids("v1.1.1-0.20260101000000-abcdefabcdef", "1.27.2"), "GO-1 GO-2 GO-3 GO-6 GO-4");
    assert_eq!(ids("v2.0.0+incompatible", "1.26.8"), "GO-2 GO-6");
    let replaced = "module m\n\nrequire a.org/a v9.0.0\n\nreplace a.org/a => b.org/b v1.0.0\n";
    let module = module(sources.path(), "1.27.3");
    std::fs::write(sources.path().join("go.mod"), replaced).unwrap();
    assert_eq!(database.decide("part", &module, None).unwrap().len(), 3);
}

fn judgement(advisory: &str, component: &str, expires: &str) -> Judgement {
    let (reason, date) = ("r".to_owned(), "2026-01-01".to_owned());
    Judgement {
        advisories: vec![advisory.to_owned()],
        components: vec![component.to_owned()],
        reason,
        date,
        expires: expires.to_owned(),
    }
}

#[test]
fn unjudged_expired_and_stale_are_told_apart() {
    let (files, sources) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, module) = (database(files.path()), module(sources.path(), "1.27.3"));
    let now: SystemTime = humantime::parse_rfc3339("2026-06-01T00:00:00Z").unwrap();
    let judged = |judgements: &[Judgement], checked: &[&str]| {
        let mut rows = database.decide("part", &module, None).unwrap();
        rows.retain(|row| ["GO-1", "GO-2"].contains(&row.advisory.id.as_str()));
        rows.iter_mut().for_each(|row| row.status = Status::Unjudged);
        let mut report = Report { rows, ..Report::default() };
        report.judge(judgements, &checked.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), now);
        report
    };
    let open = judged(&[judgement("GO-1", "part", "2027-01-01")], &["part"]);
    assert_eq!((open.count(Status::Unjudged), open.count(Status::Judged)), (1, 1));
    assert!(open.fails(true) && open.fails(false));
    assert_eq!(open.rows[0].advisory.id, "GO-2", "open ones come first");
    // An alias names it as well; an expired judgement fails, but not where only pinned data counts.
    let all = [judgement("CVE-GO-1", "part", "2027-01-01"), judgement("GO-2", "*", "2026-05-01")];
    let expired = judged(&all, &["part"]);
    assert_eq!((expired.count(Status::Expired), expired.fails(true), expired.fails(false)), (1, false, true));
    let renewed = judged(&[all[0].clone(), all[1].clone(), judgement("GO-2", "part", "2026-12-01")], &["part"]);
    assert!(!renewed.fails(false));
    assert_eq!(renewed.stale, [""; 0]);
    // Of a component that was not checked nothing is stale.
    let gone = [judgement("GO-9", "part", "2027-01-01"), judgement("GO-1", "other", "2027-01-01")];
    assert_eq!(judged(&gone, &["part"]).stale, ["GO-9 of part"]);
}
