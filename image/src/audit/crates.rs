//! The crates of our own programs, by cargo-deny as `.ci/deny` installs and runs it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Advisory, Report, Row, Status};
use crate::cache::Cache;
use crate::process::Tool;
use crate::progress::Progress;

/// The component under which crates are judged.
pub const CRATES: &str = "crates";
/// How `.ci/deny` begins the line that names what it could not check.
const UNCHECKED: &str = "deny: unchecked: ";

/// Adds rows for the crates that the lock file of a workspace names.
///
/// # Errors
/// When cargo-deny refuses a licence, a source or a crate, or does not run.
pub fn check(workspace: &Path, cache: &Cache, progress: &Progress, report: &mut Report) -> Result<()> {
    let running = progress.begin("advisories crates");
    let script = workspace.join(".ci/deny");
    let said = Tool::as_caller(&script)
        .arg(cache.root().join("cargo-deny"))
        .arg("--audit")
        .output(progress)
        .context("checking the crates")?;
    add(&String::from_utf8_lossy(&said), report)?;
    running.done();
    Ok(())
}

/// Adds what `.ci/deny --audit` printed: lines for people that begin with `deny: `, and cargo-deny's lines of JSON.
fn add(said: &str, report: &mut Report) -> Result<()> {
    let mut checked = true;
    for line in said.lines() {
        if let Some(what) = line.strip_prefix(UNCHECKED) {
            report.unchecked.push(format!("{CRATES}: {what}"));
            checked = false;
        }
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        let advisory = &value["fields"]["advisory"];
        let Some(id) = advisory["id"].as_str() else {
            // A yanked crate is one without an advisory.
            match value["fields"]["severity"].as_str() {
                Some("error") => bail!("cargo-deny: {}", value["fields"]["message"].as_str().unwrap_or(line)),
                _ => continue,
            }
        };
        let text = |key: &str| advisory[key].as_str().unwrap_or_default().to_owned();
        let aliases =
            advisory["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let advisory = Advisory { id: id.to_owned(), aliases, summary: text("title") };
        let krate = &value["fields"]["graphs"][0]["Krate"];
        let version = krate["version"].as_str().unwrap_or_default();
        let part = format!("{} {version}", text("package"));
        report.rows.push(Row {
            component: CRATES.to_owned(),
            part: part.trim().to_owned(),
            advisory,
            fixed: None,
            status: Status::Unjudged,
            reason: None,
        });
    }
    if checked {
        report.checked.push("crates by cargo-deny: advisories, licences, sources".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advisory_of_a_crate_is_a_row_and_a_missing_database_is_no_success() {
        let mut report = Report::default();
        let line = r#"{"type":"diagnostic","fields":{"severity":"error","graphs":[{"Krate":{"name":"a","version":"1.0.0"}}],"advisory":{"id":"RUSTSEC-2026-1","package":"a","title":"t","aliases":["CVE-2026-1"]}}}"#;
        add(&format!("deny: licenses ok\n{line}\n"), &mut report).unwrap();
        assert_eq!((report.rows[0].part.as_str(), report.rows[0].status), ("a 1.0.0", Status::Unjudged));
        assert!(report.unchecked.is_empty() && report.checked.len() == 1);
        let mut report = Report::default();
        add("deny: unchecked: advisories: the database was not reached\n", &mut report).unwrap();
        assert_eq!(report.unchecked, ["crates: advisories: the database was not reached"]);
        assert!(report.checked.is_empty());
        assert!(add(r#"{"fields":{"severity":"error","message":"yanked"}}"#, &mut report).is_err());
    }
}
