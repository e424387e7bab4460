//! The `guestinfo` variables of a VMware VM, over the backdoor. Any local user of the VM can read them, so secrets do
//! not stay there.

use super::document;
use crate::host::vmware::backdoor::{self, Port};
use crate::host::vmware::hardware::Hardware;

/// The variable with vCenter's OVF environment.
pub const OVF_ENVIRONMENT: &str = "guestinfo.ovfEnv";

/// The replacement for an environment whose secrets cannot be removed alone: values cannot be deleted or made empty.
const REMOVED: &str = "<!-- The OVF environment was read and removed. -->";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The message failed.
    #[error(transparent)]
    Backdoor(#[from] backdoor::Error),
    #[error("the hypervisor refused to {attempt} {key}: {reason}")]
    Refused {
        /// `read` or `set`.
        attempt: &'static str,
        key: String,
        reason: String,
    },
    #[error("{0} cannot be set to an empty value")]
    Empty(String),
}

/// The variables, through the machine's port or an emulated one.
pub struct GuestInfo<P> {
    port: P,
}

impl GuestInfo<Hardware> {
    /// The variables of this VM. `None` if the hypervisor is not VMware's.
    pub fn of_this_machine() -> Option<Self> {
        Hardware::detect().map(Self::new)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// There was no secret.
    Nothing,
    Secrets,
    /// The whole document was removed, because its secrets could not be found.
    Everything,
}

impl<P: Port> GuestInfo<P> {
    pub fn new(port: P) -> Self {
        Self { port }
    }

    /// `None` if the variable is missing, empty, or the text `NULL`, which some tools leave behind.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let reply = backdoor::call(&mut self.port, format!("info-get {key}").as_bytes())?;
        match status(&reply) {
            (true, value) => {
                let content = value.strip_suffix(b"\0").unwrap_or(value).trim_ascii();
                Ok((!content.is_empty() && content != b"NULL").then(|| value.to_vec()))
            }
            (false, b"No value found") => Ok(None),
            (false, reason) => Err(refused("read", key, reason)),
        }
    }

    /// Administrators can forbid this with `isolation.tools.setInfo.disable`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if value.is_empty() {
            return Err(Error::Empty(key.to_owned()));
        }
        let reply = backdoor::call(&mut self.port, format!("info-set {key} {value}").as_bytes())?;
        match status(&reply) {
            (true, _) => Ok(()),
            (false, reason) => Err(refused("set", key, reason)),
        }
    }

    /// The OVF environment. `None` if it is not set or was removed.
    pub fn environment(&mut self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.get(OVF_ENVIRONMENT)?.filter(|value| value != REMOVED.as_bytes()))
    }

    /// Removes the whole OVF environment. True if there was one. After an error it still exists.
    pub fn remove(&mut self) -> Result<bool, Error> {
        let there = self.environment()?.is_some();
        if there {
            self.set(OVF_ENVIRONMENT, REMOVED)?;
        }
        Ok(there)
    }

    /// Removes the secrets from the OVF environment. If it cannot be parsed, or is too long to be set again, removes
    /// all of it. This is done at every boot, because vCenter restores the secrets at each power-on. After an error the
    /// secrets still exist.
    pub fn scrub(&mut self) -> Result<Scrubbed, Error> {
        let Some(value) = self.environment()? else { return Ok(Scrubbed::Nothing) };
        let room = backdoor::LONGEST_REQUEST - "info-set  ".len() - OVF_ENVIRONMENT.len();
        let clean = match document::scrubbed(&value) {
            Ok(None) => return Ok(Scrubbed::Nothing),
            // It is proved to have no secret, or is removed.
            Ok(Some(clean)) if clean.len() <= room && document::scrubbed(clean.as_bytes()) == Ok(None) => Some(clean),
            _ => None,
        };
        self.set(OVF_ENVIRONMENT, clean.as_deref().unwrap_or(REMOVED))?;
        Ok(if clean.is_some() { Scrubbed::Secrets } else { Scrubbed::Everything })
    }
}

fn refused(attempt: &'static str, key: &str, reason: &[u8]) -> Error {
    Error::Refused { attempt, key: key.to_owned(), reason: String::from_utf8_lossy(reason).into_owned() }
}

/// Splits a reply into its first word, `1` for success, and the rest.
fn status(reply: &[u8]) -> (bool, &[u8]) {
    match reply {
        [b'1'] => (true, b""),
        [b'1', b' ', value @ ..] => (true, value),
        [b'0', b' ', reason @ ..] => (false, reason),
        other => (false, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::vmware::backdoor::Registers;
    use crate::host::vmware::backdoor::emulated::Hypervisor;

    const GOOD: &str = include_str!("fixtures/three-nodes.xml");

    fn guestinfo(value: &str) -> GuestInfo<Hypervisor> {
        GuestInfo::new(Hypervisor::with(OVF_ENVIRONMENT, value))
    }

    fn content(guestinfo: &GuestInfo<Hypervisor>) -> String {
        String::from_utf8(guestinfo.port.values[OVF_ENVIRONMENT].clone()).unwrap()
    }

    #[test]
    fn backdoor_is_used_only_on_vmware() {
        // The test hosts are not VMware guests. On one, this reads a missing variable.
        if let Some(mut guestinfo) = GuestInfo::of_this_machine() {
            assert!(guestinfo.get("guestinfo.kaas-test-absent").unwrap().is_none());
        }
    }

    #[test]
    fn values_are_read_and_set() {
        let mut guestinfo = guestinfo("a b  c");
        assert_eq!(guestinfo.get(OVF_ENVIRONMENT).unwrap().as_deref(), Some(b"a b  c".as_slice()));
        assert_eq!(guestinfo.get("guestinfo.other").unwrap(), None);
        guestinfo.set("guestinfo.kaas.status", "ready & well <now>").unwrap();
        assert_eq!(guestinfo.get("guestinfo.kaas.status").unwrap().unwrap(), b"ready & well <now>");
        assert!(matches!(guestinfo.set("guestinfo.kaas.status", ""), Err(Error::Empty(_))));
    }

    #[test]
    fn leftovers_are_no_values() {
        for text in ["", " ", "NULL", "NULL\0", "\n"] {
            assert_eq!(guestinfo(text).get(OVF_ENVIRONMENT).unwrap(), None, "{text:?}");
        }
    }

    /// A hypervisor that answers with these registers, one exchange after the other, and then with zeros.
    struct Answers<'a>(std::slice::ChunksExact<'a, u8>);

    /// Size of the registers of one answer, in bytes.
    const ANSWER: usize = 24;

    impl Port for Answers<'_> {
        fn exchange(&mut self, _: Registers) -> Registers {
            let answer = self.0.next().unwrap_or(&[0; ANSWER]);
            let at = |place: usize| u32::from_le_bytes(std::array::from_fn(|byte| answer[4 * place + byte]));
            Registers { eax: at(0), ebx: at(1), ecx: at(2), edx: at(3), esi: at(4), edi: at(5) }
        }
    }

    /// Records a hypervisor's answers.
    struct Recorder(Hypervisor, Vec<u8>);

    impl Port for Recorder {
        fn exchange(&mut self, registers: Registers) -> Registers {
            let answer = self.0.exchange(registers);
            let Registers { eax, ebx, ecx, edx, esi, edi } = answer;
            self.1.extend([eax, ebx, ecx, edx, esi, edi].iter().flat_map(|register| register.to_le_bytes()));
            answer
        }
    }

    #[test]
    fn fuzz_of_the_hypervisors_answers() {
        use crate::fuzz::{Example, fuzz};

        let recorded = |value: &str, change: fn(&mut Hypervisor)| {
            let mut hypervisor = Hypervisor::with(OVF_ENVIRONMENT, value);
            change(&mut hypervisor);
            let mut guestinfo = GuestInfo::new(Recorder(hypervisor, Vec::new()));
            let _ = guestinfo.environment();
            let _ = guestinfo.scrub();
            Example::new(guestinfo.port.1)
        };
        let short = "<Environment/>";
        let examples = [
            recorded(short, |_| {}),
            recorded(GOOD, |_| {}),
            recorded(short, |hypervisor| (hypervisor.cookies, hypervisor.writable) = (false, false)),
            recorded(short, |hypervisor| hypervisor.checkpoints = vec![9, 20]),
        ];
        fuzz("answers of the backdoor", 16 << 20, &examples, |bytes| {
            let mut guestinfo = GuestInfo::new(Answers(bytes.chunks_exact(ANSWER)));
            let read = guestinfo.environment();
            assert!(!read.is_ok_and(|value| value.is_some_and(|value| value.len() > backdoor::LONGEST_REPLY)));
            let _ = guestinfo.scrub();
        });
    }

    #[test]
    fn scrubbing_removes_the_secrets_once() {
        let mut guestinfo = guestinfo(GOOD);
        assert_eq!(guestinfo.scrub().unwrap(), Scrubbed::Secrets);
        assert!(!content(&guestinfo).contains("x7$Qm") && content(&guestinfo).contains("cp2=192.168.10.12"));
        assert_eq!(guestinfo.scrub().unwrap(), Scrubbed::Nothing);
        assert_eq!(GuestInfo::new(Hypervisor::default()).scrub().unwrap(), Scrubbed::Nothing);
    }

    #[test]
    fn invalid_or_long_environment_is_removed_completely() {
        let padded = GOOD.replace("<Locale>", &format!("<!-- {} --><Locale>", "x".repeat(70_000)));
        let far_apart =
            GOOD.replace("deployment-secret\" oe:value=", &format!("deployment-secret\" oe:value{}=", " ".repeat(300)));
        for text in [padded, far_apart, GOOD[..GOOD.len() - 20].to_owned()] {
            let mut guestinfo = guestinfo(&text);
            assert_eq!(guestinfo.scrub().unwrap(), Scrubbed::Everything);
            assert!(!content(&guestinfo).contains("x7$Qm"));
            assert_eq!(guestinfo.scrub().unwrap(), Scrubbed::Nothing);
        }
    }

    #[test]
    fn refusal_to_set_is_an_error() {
        let mut guestinfo = guestinfo(GOOD);
        guestinfo.port.writable = false;
        let error = guestinfo.scrub().unwrap_err().to_string();
        assert_eq!(error, "the hypervisor refused to set guestinfo.ovfEnv: Permission denied");
    }
}
