//! The node's statement for its hypervisor: in guestinfo, in the file that a container engine names, or otherwise on
//! the console.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use contract::bios_uuid::BiosUuid;
use contract::finding::Severity;
use contract::statement::{Phase, Statement, lasts};

use super::Status;
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::vmware::backdoor::Port;
use crate::intake::environment::guestinfo::GuestInfo;

/// The part of a statement whose changes are written to a console. Readers of a console do not need each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnnouncedStatement {
    code: String,
    /// Number of refusals. More than two are no news.
    times: u32,
    /// The key that a worker joins with.
    key: Option<String>,
    is_done: bool,
}

#[derive(Default)]
pub(super) struct StatementWriter {
    file: Option<PathBuf>,
    machine: Option<BiosUuid>,
    last: Option<Statement>,
}

impl StatementWriter {
    pub(super) fn new(root: &Path) -> Self {
        let platform = Platform::detect(root).ok();
        let file = platform.as_ref().and_then(Platform::statement_file);
        Self { file, machine: platform.and_then(|platform| platform.bios_uuid()), last: None }
    }

    /// Writes the statement if it differs from the last one. After a failure the next change tries again.
    pub(super) fn say<P: Port>(
        &mut self,
        status: &Status,
        guestinfo: Option<&mut GuestInfo<P>>,
        now: SystemTime,
    ) -> anyhow::Result<()> {
        let statement = statement(status, self.machine, now);
        let at = |at| Statement { at, ..statement.clone() };
        if self.last.as_ref().is_some_and(|last| *last == at(last.at)) {
            return Ok(());
        }
        let text = statement.to_string();
        if let Some(guestinfo) = guestinfo {
            guestinfo.set(Statement::GUESTINFO, &text)?;
        }
        if let Some(file) = &self.file {
            files::write_atomically(file, text.as_bytes(), 0o644)
                .with_context(|| format!("writing {}", file.display()))?;
        }
        self.last = Some(statement);
        Ok(())
    }

    /// The line for the console, if the hypervisor shows nothing else. The first value changes when the line must be
    /// written again.
    ///
    /// It is written while something is refused and once more after that, when a worker requests its certificate, and
    /// when it has joined.
    pub(super) fn line(&self) -> Option<(AnnouncedStatement, String)> {
        let last = self.last.as_ref()?;
        let code = last.code.clone().filter(|_| last.phase == Phase::Refused).unwrap_or_default();
        let is_done = last.key.is_some() && last.phase == Phase::Done;
        Some((AnnouncedStatement { code, times: last.times.min(2), key: last.key.clone(), is_done }, last.line()))
    }
}

fn statement(status: &Status, machine: Option<BiosUuid>, now: SystemTime) -> Statement {
    let mut errors = status.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let lasts = |code: &str| lasts(code, status.work.is_some());
    let first = errors.clone().find(|finding| lasts(&finding.code)).or_else(|| errors.next());
    let words = first.map_or_else(|| status.summary(), |one| format!("{}: {}. {}", one.subject, one.seen, one.action));
    let at = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Statement {
        machine,
        phase: status.phase,
        code: first.map(|one| one.code.clone()),
        words: Statement::words(&words),
        lasting: first.is_some_and(|one| lasts(&one.code)),
        times: status.refusals,
        token: status.token.clone(),
        key: status.key.clone(),
        at,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use contract::codes;
    use contract::finding::Findings;

    use super::*;
    use crate::host::vmware::backdoor::emulated::Hypervisor;
    use crate::status::Work;

    fn refused(times: u32) -> Status {
        let mut findings = Findings::default();
        findings.push(codes::DNS_MANY.finding("dns-servers", "four are given", "Give at most three"));
        findings.push(codes::NETWORK_NO_CARRIER.finding("eth1", "it is not connected", "Connect it"));
        findings.push(codes::JOIN_TOKEN_REFUSED.finding("join-token", "it is not taken", "Make a new one"));
        findings.push(codes::JOIN_CERTIFICATE_EXPIRED.finding("join-token", "it ended", "It joins again"));
        let token = Some("abcdef".to_owned());
        Status { phase: Phase::Refused, findings, refusals: times, token, ..Status::default() }
    }

    #[test]
    fn only_changed_refusals_are_written_with_first_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("statement.json");
        let mut sayings =
            StatementWriter { file: Some(file.clone()), machine: Some(BiosUuid::from_u128(7)), last: None };
        let mut guestinfo = GuestInfo::new(Hypervisor::default());
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (times, now, said) in [(1, 100, 100), (1, 110, 100), (2, 130, 130)] {
            sayings.say(&refused(times), Some(&mut guestinfo), at(now)).unwrap();
            let there = fs::read(&file).unwrap();
            assert_eq!(guestinfo.get(Statement::GUESTINFO).unwrap().unwrap(), there);
            let there = Statement::read(&there).unwrap();
            assert_eq!((there.code.as_deref(), there.times, there.at), (Some("join.token-refused"), times, said));
            assert!(there.lasting && there.words.starts_with("join-token: it is not taken. "), "{there:?}");
            assert_eq!((there.machine, there.token.as_deref()), (Some(BiosUuid::from_u128(7)), Some("abcdef")));
        }
        let status = Status { phase: Phase::Waiting, findings: Findings::default(), refusals: 0, ..refused(0) };
        sayings.say(&status, Some(&mut guestinfo), at(140)).unwrap();
        let there = Statement::read(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((there.phase, there.code, there.lasting, there.times), (Phase::Waiting, None, false, 0));
    }

    #[test]
    fn console_shows_the_workers_key_and_join() {
        let mut sayings = StatementWriter::default();
        let mut told = |status: &Status| {
            sayings.say::<Hypervisor>(status, None, SystemTime::UNIX_EPOCH).unwrap();
            sayings.line().unwrap()
        };
        let (nothing, _) = told(&Status { phase: Phase::Working, ..Status::default() });
        assert_eq!(nothing, AnnouncedStatement::default(), "a control node says nothing there");
        let key = Some("0123456789abcdef".to_owned());
        let asks = Status { phase: Phase::Working, key: key.clone(), ..Status::default() };
        let (asked, line) = told(&asks);
        assert_eq!(Statement::last_said(&line).unwrap().key, key);
        let (waits, _) = told(&Status { phase: Phase::Waiting, ..asks.clone() });
        let (done, line) = told(&Status { phase: Phase::Done, ..asks });
        assert!(asked != nothing && waits == asked && done != asked);
        assert_eq!(Statement::last_said(&line).unwrap().phase, Phase::Done);
    }

    #[test]
    fn only_errors_of_the_form_last() {
        let mut findings = Findings::default();
        findings.push(codes::GATEWAY_OFF_SUBNET.finding("gateway", "10.7.0.1 is not in 10.0.0.0/24", "Correct it"));
        let of_the_form = Status { phase: Phase::Refused, findings, refusals: 2, ..Status::default() };
        assert!(statement(&of_the_form, None, SystemTime::UNIX_EPOCH).lasting);
        let work = Work { number: 3, total: 9, step: "joining".into(), waiting: None };
        let of_a_lease = Status { work: Some(work), ..of_the_form };
        let said = statement(&of_a_lease, None, SystemTime::UNIX_EPOCH);
        assert_eq!((said.code.as_deref(), said.lasting), (Some("gateway.off-subnet"), false));
    }

    #[test]
    fn failed_statement_is_written_with_next_change() {
        let mut closed = Hypervisor::with("x", "y");
        closed.writable = false;
        let mut guestinfo = GuestInfo::new(closed);
        let mut sayings = StatementWriter::default();
        assert!(sayings.say(&refused(1), Some(&mut guestinfo), SystemTime::UNIX_EPOCH).is_err());
        assert!(sayings.last.is_none());
    }
}
