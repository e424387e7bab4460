//! The API server's audit policy (`audit.k8s.io/v1`) and audit log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Finding;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::cluster::etcd::snapshot::room;
use crate::host::files;

pub const POLICY: &str = "/run/kaas/kube-apiserver/audit.json";
/// The directory of the log: on the data disk, so that it survives an image swap.
pub const LOGS: &str = contract::paths::AUDIT;

/// The file that is written to, in [`LOGS`].
const LOG: &str = "audit.log";
/// The size at which the API server begins the next file, in MB. It is small, so that a flood of requests has more files in an hour
/// than other hours have: see [`next_to_remove`].
const LOG_SIZE: u32 = 10;
/// The number of older files that [`trim`] keeps: it compresses them.
const FILES: u32 = 5000;
/// The number of older files that the API server keeps. Its oldest ones go first, so that [`trim`] must be earlier.
const LOG_FILES: u32 = 2 * FILES;
/// The age at which the API server removes a file, in days.
const LOG_DAYS: u32 = 365;

/// The share of the data disk that the log may take: one in so many bytes …
const SHARE: u64 = 20;
/// … within these bounds, in bytes.
const BOUNDS: (u64, u64) = (256 << 20, 2 << 30);

/// A file that is removed at an earlier age is a finding.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// The recorded requests: who did what to which object and when, without the bodies of requests and answers. The first rule
/// that fits counts.
pub(super) fn policy() -> Value {
    let components = [
        "system:apiserver",
        "system:kube-controller-manager",
        "system:kube-proxy",
        "system:kube-scheduler",
        "system:kaas:agent",
        "system:kaas:pod-network",
    ];
    let groups = ["system:nodes", "system:serviceaccounts:kube-system", "system:serviceaccounts:kaas-system"];
    let secrets = json!([
        {"group": "", "resources": ["secrets", "serviceaccounts/token"]},
        {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
    ]);
    let reading = ["get", "list", "watch"];
    // A request without an accepted identity has no user and no group. The API server writes what no rule selects nowhere: such
    // requests cannot flush the log. A rule for `system:unauthenticated` would not see an answer 401, which has no group.
    let known = ["system:authenticated"];
    // A client certificate may name this user, or the group `system:unauthenticated`, as well as a group with rights. The API server
    // adds `system:authenticated` to neither (`AuthenticatedGroupAdder`).
    let anonymous = ["system:anonymous"];
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics", "/openapi*"]},
            // All else that a stranger reaches (`authentication`), with any verb.
            {"level": "None", "users": anonymous, "namespaces": ["kube-public"], "resources": [
                {"group": "", "resources": ["configmaps"], "resourceNames": ["cluster-info"]},
            ]},
            {"level": "Metadata", "users": anonymous},
            {"level": "Metadata", "userGroups": ["system:unauthenticated"]},
            // All reads of Secrets are recorded, those of the system's own parts included.
            {"level": "Metadata", "userGroups": known, "resources": secrets},
            // Programs that are run in pods, and ways into them: over WebSocket these are `get`, as reading is.
            {"level": "Metadata", "userGroups": known, "resources": [
                {"group": "", "resources": ["pods/exec", "pods/attach", "pods/portforward", "nodes/proxy"]},
            ]},
            // Requests that a cluster makes all the time by itself.
            {"level": "None", "resources": [
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ]},
            {"level": "None", "userGroups": ["system:nodes"], "resources": [
                {"group": "", "resources": ["nodes/status", "pods/status"]},
            ]},
            {"level": "None", "users": components, "verbs": reading},
            {"level": "None", "userGroups": groups, "verbs": reading},
            {"level": "Metadata", "userGroups": known},
        ],
    })
}

/// The arguments that point the API server to the policy and bound its log: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("audit-policy-file", POLICY.to_owned()),
        ("audit-log-path", format!("{LOGS}/{LOG}")),
        ("audit-log-maxsize", LOG_SIZE.to_string()),
        ("audit-log-maxbackup", LOG_FILES.to_string()),
        ("audit-log-maxage", LOG_DAYS.to_string()),
    ]
}

/// Writes the log to the disk and compresses the oldest file that is not compressed. While all files exceed their share of the
/// data disk, it removes some. Returns a finding if it removed one of the last day. Without a log it does nothing.
///
/// # Errors
/// The disk cannot be measured, or a file cannot be written or removed. A file that could not be compressed is left as it was.
pub fn trim(root: &Path) -> anyhow::Result<Option<Finding>> {
    let directory = files::below(root, LOGS);
    match File::open(directory.join(LOG)) {
        Ok(log) => log.sync_data().context("writing the audit log to the disk")?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("opening the audit log"),
    }
    // One at a time, which takes a second or two: etcd may need room.
    let compressed = compress_oldest(&directory).context("compressing an audit log");
    let (_, whole) = room(&directory).context("measuring the data disk")?;
    let most = (whole / SHARE).clamp(BOUNDS.0, BOUNDS.1);
    let is_short = trim_to(&directory, most, SystemTime::now()).context("removing old audit logs")?;
    compressed?;
    Ok(is_short.then(|| {
        let seen = format!("files of the last 24 hours were removed: all files may have {} MiB", most >> 20);
        let action =
            format!("Find the sender of most requests in {LOGS}. On a larger data disk the log has up to 2 GiB");
        codes::AUDIT_WINDOW_SHORT.finding("the audit log", seen, action)
    }))
}

/// Puts the gzip form of a file in its place. After a power cut the file, its gzip form or both are whole: the API server itself
/// (`--audit-log-compress`) would flush nothing and remove the file.
fn compress_oldest(directory: &Path) -> io::Result<()> {
    let names = fs::read_dir(directory)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let Some(name) = names.filter(|name| name.starts_with("audit-") && name.ends_with(".log")).min() else {
        return Ok(());
    };
    let (plain, packed) = (directory.join(&name), directory.join(format!("{name}.gz")));
    let temporary = files::beside(&packed)?;
    let pack = || -> io::Result<bool> {
        files::remove(&temporary)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut encoder = GzEncoder::new(file, Compression::default());
        io::copy(&mut File::open(&plain)?, &mut encoder)?;
        encoder.finish()?.sync_all()?;
        files::put_in_place(&temporary, &packed)?;
        files::remove(&plain)
    };
    pack().map(drop).inspect_err(|_| {
        let _ = files::remove(&temporary);
    })
}

/// An older file of the log: `audit-TIME.log`, and `audit-TIME.log.gz` once it is compressed.
struct Older {
    name: String,
    size: u64,
    modified: SystemTime,
}

impl Older {
    /// The hour in which the next file began, in UTC.
    fn hour(&self) -> &str {
        self.name.get(.."audit-2026-11-20T10".len()).unwrap_or(&self.name)
    }
}

/// Removes files until all of them have `most` bytes. Returns whether one of them is younger than [`WINDOW`] at `now`.
fn trim_to(directory: &Path, most: u64, now: SystemTime) -> io::Result<bool> {
    let (mut older, mut sum, mut is_short) = (Vec::new(), 0, false);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // The API server may have removed it since.
        let Ok(file) = entry.metadata() else { continue };
        // A small one counts as more than it has: there are never more than `FILES`.
        let size = file.len().max(most / u64::from(FILES));
        sum += size;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("audit-") {
            older.push(Older { name, size, modified: file.modified()? });
        }
    }
    older.sort_by(|one, other| one.name.cmp(&other.name));
    while sum > most && !older.is_empty() {
        let file = older.remove(next_to_remove(&older, most / 2));
        files::remove(&directory.join(&file.name))?;
        log::info!("removed the audit log {}: all of them may have {} MiB", file.name, most >> 20);
        sum -= file.size;
        is_short |= file.modified + WINDOW > now;
    }
    Ok(is_short)
}

/// The place of a file in `older`, which has the oldest one first. The newest files stay, up to `newest` bytes. Of the others, the
/// hour with the most files loses its second one. So a flood of requests pushes its own files out, and the first file of each
/// hour stays. Once each hour has one file, the oldest goes.
fn next_to_remove(older: &[Older], newest: u64) -> usize {
    let mut kept = 0;
    let recent = older.iter().rev().take_while(|file| {
        kept += file.size;
        kept <= newest
    });
    let others = &older[..older.len() - recent.count()];
    let (mut begin, mut most, mut place) = (0, 1, 0);
    for hour in others.chunk_by(|one, other| one.hour() == other.hour()) {
        if hour.len() > most {
            (most, place) = (hour.len(), begin + 1);
        }
        begin += hour.len();
    }
    place
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::ops::Range;
    use std::os::unix::fs::PermissionsExt as _;

    use flate2::read::GzDecoder;
    use tempfile::TempDir;

    use super::*;

    /// The level for an object that no rule names.
    fn noted(user: &str, group: &str, verb: &str, resource: (&str, &str)) -> String {
        noted_of(user, &[group], verb, resource, ("default", "x"))
    }

    /// The level of the first rule that fits, as `policyRuleEvaluator` of k8s.io/apiserver finds it; `None` if none does. A request
    /// with an accepted identity gets the group that `AuthenticatedGroupAdder` adds. One without has no user.
    fn noted_of(user: &str, groups: &[&str], verb: &str, resource: (&str, &str), object: (&str, &str)) -> String {
        let mut groups = groups.to_vec();
        if !["", "system:anonymous"].contains(&user) && !groups.contains(&"system:unauthenticated") {
            groups.push("system:authenticated");
        }
        let policy = policy();
        let has = |list: &Value, what: &str| list.as_array().is_some_and(|list| list.iter().any(|one| one == what));
        let fits = |rule: &&Value| {
            let names = |field: &str, what: &str| rule.get(field).is_none_or(|list| has(list, what));
            let resources = |list: &Value| {
                let mut list = list.as_array().unwrap().iter();
                list.any(|one| {
                    one["group"] == resource.0
                        && has(&one["resources"], resource.1)
                        && one.get("resourceNames").is_none_or(|names| has(names, object.1))
                })
            };
            rule.get("nonResourceURLs").is_none()
                && names("users", user)
                && rule.get("userGroups").is_none_or(|list| groups.iter().any(|group| has(list, group)))
                && names("verbs", verb)
                && names("namespaces", object.0)
                && rule.get("resources").is_none_or(resources)
        };
        let rule = policy["rules"].as_array().unwrap().iter().find(fits);
        rule.map_or("None", |rule| rule["level"].as_str().unwrap()).to_owned()
    }

    #[test]
    fn the_audit_log_leaves_out_noise_alone() {
        let admins = "kubeadm:cluster-admins";
        let table = [
            ("anna", admins, "get", ("", "pods"), "Metadata"),
            ("anna", admins, "delete", ("apps", "deployments"), "Metadata"),
            ("anna", admins, "create", ("", "pods/exec"), "Metadata"),
            (
                "system:serviceaccount:kube-system:x",
                "system:serviceaccounts:kube-system",
                "get",
                ("", "pods/exec"),
                "Metadata",
            ),
            ("system:node:cp1", "system:nodes", "get", ("", "nodes/proxy"), "Metadata"),
            ("system:serviceaccount:kube-system:x", "system:serviceaccounts:kube-system", "get", ("", "pods"), "None"),
            ("system:node:cp1", "system:nodes", "get", ("", "secrets"), "Metadata"),
            ("system:kube-controller-manager", "none", "list", ("", "secrets"), "Metadata"),
            ("system:kube-controller-manager", "none", "list", ("", "pods"), "None"),
            ("system:kube-controller-manager", "none", "create", ("", "pods"), "Metadata"),
            ("system:node:cp1", "system:nodes", "patch", ("", "nodes/status"), "None"),
            ("system:node:cp1", "system:nodes", "delete", ("", "pods"), "Metadata"),
            ("system:kube-scheduler", "none", "update", ("coordination.k8s.io", "leases"), "None"),
        ];
        for (user, group, verb, resource, level) in table {
            assert_eq!(noted(user, group, verb, resource), level, "{user} {verb} {resource:?}");
        }
        for verb in ["get", "create", "delete"] {
            for resource in [("", "secrets"), ("", "pods/exec"), ("apps", "deployments")] {
                assert_eq!(noted("", "", verb, resource), "None", "an answer 401: {verb} {resource:?}");
                // Certificates that leave the API server no group to add.
                assert_eq!(noted("system:anonymous", admins, verb, resource), "Metadata", "{verb} {resource:?}");
                let both = ["system:unauthenticated", admins];
                assert_eq!(noted_of("anna", &both, verb, resource, ("default", "x")), "Metadata", "{verb}");
            }
            let groups = ["system:unauthenticated"];
            let of = |object| noted_of("system:anonymous", &groups, verb, ("", "configmaps"), object);
            assert_eq!(of(("kube-public", "cluster-info")), "None", "what a stranger reaches: {verb}");
            assert_eq!(of(("kube-public", "another")), "Metadata");
            assert_eq!(of(("kube-system", "cluster-info")), "Metadata");
        }
        let rules = policy()["rules"].clone();
        let bodies = |rule: &Value| !["None", "Metadata"].contains(&rule["level"].as_str().unwrap());
        assert!(!rules.as_array().unwrap().iter().any(bodies), "bodies hold secrets: {rules:#}");
    }

    #[test]
    fn compression_survives_power_cuts() {
        for steps in 0.. {
            let root = tempfile::tempdir().unwrap();
            let directory = files::below(root.path(), LOGS);
            fs::create_dir_all(&directory).unwrap();
            let file = |hour: u32| directory.join(format!("audit-2026-11-21T{hour}-00-00.000.log"));
            let (first, second) = (file(10), file(11));
            for path in [&first, &second, &directory.join(LOG)] {
                fs::write(path, path.display().to_string()).unwrap();
            }
            let packed = first.with_extension("log.gz");
            let unpacked = || -> Option<String> {
                let mut text = String::new();
                GzDecoder::new(File::open(&packed).ok()?).read_to_string(&mut text).expect("it is whole");
                Some(text)
            };
            let (trimmed, is_cut) = files::power::with(steps, || trim(root.path()));
            assert!(trimmed.is_ok() || is_cut, "{trimmed:?}");
            assert!(first.exists() || unpacked().is_some(), "nothing is left after {steps} steps");
            assert!(second.exists(), "one at a time");
            // After the power cut.
            for _ in 0..2 {
                trim(root.path()).unwrap();
            }
            assert_eq!(unpacked().unwrap(), first.display().to_string());
            assert_eq!(fs::metadata(&packed).unwrap().permissions().mode() & 0o777, 0o600);
            let mut left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
            left.sort();
            assert_eq!(left, [packed, second.with_extension("log.gz"), directory.join(LOG)]);
            if !is_cut {
                break;
            }
        }
        assert!(arguments().iter().all(|(name, _)| *name != "audit-log-compress"), "the API server does not flush");
    }

    /// A directory with these files of the log and the one that is written to, of 100 bytes each.
    fn directory(names: &[String]) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in names.iter().map(String::as_str).chain([LOG]) {
            fs::write(directory.path().join(name), [0u8; 100]).unwrap();
        }
        directory
    }

    /// The files of the log, without the one that is written to.
    fn left(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.pop().unwrap(), LOG, "what is written to stays");
        names
    }

    /// The file that was ended in this minute of 21 November 2026.
    fn ended(hour: u32, minute: u32) -> String {
        format!("audit-2026-11-21T{hour:02}-{minute:02}-00.000.log.gz")
    }

    #[test]
    fn the_log_keeps_to_its_share() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(trim(root.path()).unwrap(), None, "there is no log yet");
        let names = [ended(8, 0), ended(9, 0), ended(10, 0)];
        let directory = directory(&names);
        let trim = |most| trim_to(directory.path(), most, SystemTime::now()).unwrap();
        assert!(!trim(400));
        assert_eq!(left(directory.path()), names);
        assert!(trim(399));
        assert_eq!(left(directory.path()), names[1..]);
        assert!(trim(0));
        assert!(left(directory.path()).is_empty());
    }

    #[test]
    fn a_flood_pushes_its_own_files_out() {
        let calm = [ended(8, 30), ended(9, 30)];
        let directory = directory(&calm);
        // Long random URIs compress badly: its files have 12 times the size.
        let flood = |hour| {
            for minute in 0..20 {
                fs::write(directory.path().join(ended(hour, minute)), [0u8; 1200]).unwrap();
            }
            trim_to(directory.path(), 9000, SystemTime::now()).unwrap();
            left(directory.path())
        };
        let of_flood = |hour, minutes: Range<u32>| minutes.map(move |minute| ended(hour, minute));
        let expected: Vec<String> = calm.iter().cloned().chain([ended(10, 0)]).chain(of_flood(10, 14..20)).collect();
        assert_eq!(flood(10), expected);
        let firsts = [ended(10, 0), ended(10, 19), ended(11, 0)];
        let expected: Vec<String> = calm.iter().cloned().chain(firsts).chain(of_flood(11, 16..20)).collect();
        assert_eq!(flood(11), expected);
    }

    #[test]
    fn many_small_files_are_no_way_around_that() {
        let names: Vec<String> = (0..FILES + 100).map(|number| ended(number / 60, number % 60)).collect();
        let directory = directory(&names);
        trim_to(directory.path(), 1 << 30, SystemTime::now()).unwrap();
        let left = left(directory.path());
        assert!(left.len() < FILES as usize && left[0] == names[0], "{} files from {}", left.len(), left[0]);
    }

    #[test]
    fn a_log_below_a_day_is_a_finding() {
        let root = tempfile::tempdir().unwrap();
        let directory = files::below(root.path(), LOGS);
        fs::create_dir_all(&directory).unwrap();
        File::create(directory.join(LOG)).unwrap();
        let large = |age: Duration| {
            let file = File::create(directory.join(ended(8, 0))).unwrap();
            file.set_len(BOUNDS.1 + 1).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        large(2 * WINDOW);
        assert_eq!(trim(root.path()).unwrap(), None);
        assert!(left(&directory).is_empty());
        large(WINDOW / 2);
        let finding = trim(root.path()).unwrap().unwrap().to_string();
        assert!(finding.starts_with("warning audit.window-short: the audit log: files of the last 24 h"), "{finding}");
    }
}
