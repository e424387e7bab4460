//! The crates of our own programs, by cargo-deny as `.ci/deny` installs and runs it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Report, Row};
use crate::cache::Cache;
use crate::process::Tool;
use crate::progress::Progress;

/// How `.ci/deny` begins the line that names what it could not check.
const UNCHECKED: &str = "deny: unchecked: ";

/// Adds rows for the crates that the lock file of a workspace names. It is an error if cargo-deny refuses a licence, a
/// source or a crate.
pub fn check(workspace: &Path, cache: &Cache, progress: &Progress, report: &mut Report) -> Result<()> {
    let running = progress.begin("advisories crates");
    let tool = Tool::as_caller(workspace.join(".ci/deny")).arg(cache.root().join("cargo-deny")).arg("--audit");
    let said = tool.output(progress).context("checking the crates")?;
    add(&String::from_utf8_lossy(&said), report)?;
    running.done();
    Ok(())
}

/// Adds what `.ci/deny --audit` printed: lines for people that begin with `deny: `, and cargo-deny's lines of JSON. The last
/// of these has the type `summary`: without it the check did not run to its end.
fn add(said: &str, report: &mut Report) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let unchecked: Vec<_> = said.lines().filter_map(|line| line.strip_prefix(UNCHECKED)).collect();
    let is_whole = lines.iter().any(|line| line["type"] == "summary");
    ensure!(is_whole || !unchecked.is_empty(), "cargo-deny did not check the crates: {}", said.trim());
    for fields in lines.iter().map(|line| &line["fields"]) {
        let advisory = &fields["advisory"];
        if advisory.is_null() {
            // A yanked crate is an error without an advisory.
            let failed = fields["severity"] == "error" || fields["level"] == "ERROR";
            ensure!(!failed, "cargo-deny: {}", text(&fields["message"]));
            continue;
        }
        let version = text(&fields["graphs"][0]["Krate"]["version"]);
        report.rows.push(Row {
            component: "crates".to_owned(),
            id: text(&advisory["id"]),
            part: format!("{} {version}", text(&advisory["package"])),
            aliases: advisory["aliases"].as_array().into_iter().flatten().map(text).collect(),
            text: text(&advisory["title"]),
            ..Row::default()
        });
    }
    if unchecked.is_empty() {
        report.checked.push("crates by cargo-deny: advisories, licences, sources".to_owned());
    }
    report.unchecked.extend(unchecked.iter().map(|what| format!("crates: {what}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_become_rows_and_missing_databases_are_unchecked() {
        let mut report = Report::default();
        let line = r#"{"type":"diagnostic","fields":{"severity":"error","graphs":[{"Krate":{"name":"a","version":"1.0.0"}}],"advisory":{"id":"RUSTSEC-2026-1","package":"a","title":"t","aliases":["CVE-2026-1"]}}}"#;
        let end = r#"{"type":"summary","fields":{"advisories":{"errors":1}}}"#;
        add(&format!("deny: licenses ok\n{line}\n{end}\n"), &mut report).unwrap();
        assert_eq!(
            (report.rows[0].part.as_str(), report.rows[0].aliases.join(" ")),
            ("a 1.0.0", "CVE-2026-1".to_owned())
        );
        assert!(report.unchecked.is_empty() && report.checked.len() == 1);
        let mut report = Report::default();
        add("deny: unchecked: advisories: the database was not reached\n", &mut report).unwrap();
        assert_eq!(report.unchecked, ["crates: advisories: the database was not reached"]);
        assert!(report.checked.is_empty());
        for failed in [
            "error: unexpected argument",
            r#"{"type":"log","fields":{"level":"ERROR","message":"no database"}}"#,
            &format!("{}\n{end}", r#"{"type":"diagnostic","fields":{"severity":"error","message":"yanked"}}"#),
        ] {
            assert!(add(failed, &mut report).is_err(), "{failed}");
        }
    }
}
