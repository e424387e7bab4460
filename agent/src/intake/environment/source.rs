//! Finds the OVF environment: in guestinfo, or on a CD-ROM. It distinguishes a missing environment, for which the
//! caller waits, from an invalid one.
//!
//! ESXi without vCenter gives no environment at power-on. It may be given later.

use std::fmt;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use contract::codes;
use contract::finding::{Finding, Findings};
use zeroize::Zeroizing;

use super::document::{self, Document};
use super::guestinfo::{GuestInfo, OVF_ENVIRONMENT};
use super::{drive, iso};
use crate::host::platform::Platform;
use crate::host::vmware::backdoor::Port;

/// The file on the CD-ROM (DSP0243 1.1.0, section 11.2, the ISO transport).
pub const FILE_NAME: &str = "ovf-env.xml";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The guestinfo variable of the VM.
    GuestInfo,
    /// A CD-ROM, which cannot be scrubbed and should be ejected.
    Medium(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GuestInfo => f.write_str(OVF_ENVIRONMENT),
            Self::Medium(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Debug)]
pub enum Outcome {
    Found {
        document: Document,
        origin: Origin,
        warnings: Findings,
    },
    /// There is no environment yet. Waiting may help.
    Absent {
        /// The sources that were checked, in words.
        looked: Vec<String>,
    },
    Refused(Findings),
}

impl Outcome {
    /// The document, or the findings. A missing one gives a finding too.
    pub fn document(self) -> Result<(Document, Origin, Findings), Findings> {
        match self {
            Self::Found { document, origin, warnings } => Ok((document, origin, warnings)),
            Self::Refused(findings) => Err(findings),
            Self::Absent { looked } => Err(absent(&looked).into()),
        }
    }
}

pub fn absent(looked: &[String]) -> Finding {
    let looked =
        if looked.is_empty() { "there is neither guestinfo nor a CD-ROM drive".to_owned() } else { looked.join("; ") };
    codes::ENVIRONMENT_ABSENT.finding(
        "OVF environment",
        looked,
        "Deploy the VM from the OVA with vCenter, or attach a CD-ROM image with ovf-env.xml",
    )
}

enum Place {
    Document(Document, Origin),
    /// There is no environment; contains the reason.
    Nothing(String),
    Bad(Finding, Origin),
}

/// Reads guestinfo, if available, and the media, in their order.
pub fn read(guestinfo: Option<&mut GuestInfo<impl Port>>, media: &[PathBuf]) -> Outcome {
    let mut places: Vec<Place> = guestinfo.map(from_guestinfo).into_iter().collect();
    places.extend(media.iter().map(|path| from_medium(path)));
    choose(places)
}

pub fn from_platform(platform: &Platform) -> Outcome {
    read(GuestInfo::of_this_machine().as_mut(), &platform.environment_media().unwrap_or_default())
}

/// Parses a document from the content of a file: the XML document, or an ISO 9660 image with it.
pub fn from_content(content: &[u8], name: &str) -> Result<Document, Findings> {
    match iso::read_file(&mut Cursor::new(content), FILE_NAME, document::LARGEST) {
        Err(iso::Error::NotIso) => Ok(Document::parse(content)?),
        Ok(Some(content)) => Ok(Document::parse(&content)?),
        Ok(None) => Err(absent(&[format!("{name} has no {FILE_NAME}")]).into()),
        Err(error) => Err(medium(Path::new(name), &error).into()),
    }
}

fn from_guestinfo(guestinfo: &mut GuestInfo<impl Port>) -> Place {
    let bytes = match guestinfo.environment() {
        Ok(Some(bytes)) => Zeroizing::new(bytes),
        Ok(None) => return Place::Nothing(format!("{OVF_ENVIRONMENT} is not set")),
        Err(error) => {
            let finding = codes::ENVIRONMENT_GUESTINFO.finding(
                OVF_ENVIRONMENT,
                error.to_string(),
                "Power the VM off and on; if it stays, attach the environment as a CD-ROM",
            );
            return Place::Bad(finding, Origin::GuestInfo);
        }
    };
    parsed(&bytes, Origin::GuestInfo)
}

fn from_medium(path: &Path) -> Place {
    let mut opened = None;
    let read = drive::open(path)
        .map_err(iso::Error::from)
        .and_then(|file| iso::read_file(opened.insert(file), FILE_NAME, document::LARGEST));
    match read {
        Ok(Some(bytes)) => parsed(&Zeroizing::new(bytes), Origin::Medium(path.to_owned())),
        Ok(None) => Place::Nothing(format!("{} has no {FILE_NAME}", path.display())),
        Err(iso::Error::NotIso) => Place::Nothing(format!("{} holds no ISO 9660 file system", path.display())),
        Err(iso::Error::Io(error)) if drive::is_empty(opened.as_mut(), &error) => {
            Place::Nothing(format!("{} is empty", path.display()))
        }
        Err(error) => Place::Bad(medium(path, &error), Origin::Medium(path.to_owned())),
    }
}

fn medium(path: &Path, error: &iso::Error) -> Finding {
    match error {
        iso::Error::TooLarge { .. } => codes::ENVIRONMENT_TOO_LARGE.finding(
            path.display().to_string(),
            error.to_string(),
            "Attach a CD-ROM image as vCenter makes it, with a document of a few kilobytes",
        ),
        _ => codes::ENVIRONMENT_MEDIUM.finding(
            path.display().to_string(),
            error.to_string(),
            "Make the CD-ROM image again, and attach it again",
        ),
    }
}

/// A document with only unknown keys is not for this appliance. Validation reports that, because all required
/// properties are missing.
fn parsed(bytes: &[u8], origin: Origin) -> Place {
    match Document::parse(bytes) {
        Ok(document) => Place::Document(document, origin),
        // ESXi's own environment of a VM without vApp options. Properties may still come.
        Err(finding) if finding.code == codes::ENVIRONMENT_NO_PROPERTIES.code => {
            Place::Nothing(format!("{origin} has no property"))
        }
        Err(mut finding) => {
            finding.subject = format!("{} from {origin}", finding.subject);
            Place::Bad(finding, origin)
        }
    }
}

fn choose(places: Vec<Place>) -> Outcome {
    let (mut documents, mut looked, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Document(document, origin) => documents.push((document, origin)),
            Place::Nothing(why) => looked.push(why),
            Place::Bad(finding, origin) => bad.push((finding, origin)),
        }
    }
    // A scrubbed document was read before. A newer one takes precedence, with any content. A scrubbed one does not hide
    // an invalid source.
    if !bad.is_empty() || documents.iter().any(|(document, _)| document.fingerprint().is_some()) {
        documents.retain(|(document, _): &(Document, Origin)| !document.is_scrubbed());
    }
    let mut documents = documents.into_iter();
    let Some((mut document, mut origin)) = documents.next() else {
        if bad.is_empty() {
            return Outcome::Absent { looked };
        }
        let mut findings = Findings::default();
        bad.into_iter().for_each(|(finding, _)| findings.push(finding));
        return Outcome::Refused(findings);
    };
    let mut conflicts = Findings::default();
    for (other, place) in documents {
        let differences = document.differences(&other);
        if !differences.is_empty() {
            conflicts.push(codes::ENVIRONMENT_CONFLICT.finding(
                "OVF environment",
                format!("{origin} and {place} differ in {}", differences.join(", ")),
                "Detach the CD-ROM that does not belong to this VM, then restart it",
            ));
        } else if !document.has_secrets_of(&other) {
            // The former one was scrubbed. This one still has all secrets.
            (document, origin) = (other, place);
        }
    }
    if !conflicts.is_empty() {
        return Outcome::Refused(conflicts);
    }
    let mut warnings = Findings::default();
    for (finding, place) in bad {
        let seen = format!("{}; {origin} was used", finding.seen);
        warnings.push(codes::ENVIRONMENT_IGNORED.finding(place.to_string(), seen, finding.action));
    }
    Outcome::Found { document, origin, warnings }
}

/// Reads a stream up to a limit above the largest useful document or CD-ROM image. Longer content is refused as too
/// large later.
pub fn read_limited(stream: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    const LARGEST_IMAGE: u64 = 64 << 20;
    let mut content = Vec::new();
    stream.take(LARGEST_IMAGE).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use flate2::read::GzDecoder;
    use tempfile::TempDir;

    use super::*;
    use crate::host::vmware::backdoor::emulated::Hypervisor;
    use contract::properties;

    const GOOD: &str = include_str!("fixtures/three-nodes.xml");

    struct Bench {
        directory: TempDir,
        media: Vec<PathBuf>,
    }

    impl Bench {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap(), media: Vec::new() }
        }

        /// Adds a CD-ROM with the valid document, changed by `change`.
        fn cdrom(mut self, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Self {
            let mut image = Vec::new();
            let packed: &[u8] = include_bytes!("fixtures/iso/plain.iso.gz");
            GzDecoder::new(packed).read_to_end(&mut image).unwrap();
            let path = self.directory.path().join(format!("sr{}", self.media.len()));
            File::create(&path).unwrap().write_all(&change(image)).unwrap();
            self.media.push(path);
            self
        }

        fn read(&self, guestinfo: Option<&str>) -> Outcome {
            let mut guestinfo = guestinfo.map(|text| {
                GuestInfo::new(if text.is_empty() {
                    Hypervisor::default()
                } else {
                    Hypervisor::with(OVF_ENVIRONMENT, text)
                })
            });
            read(guestinfo.as_mut(), &self.media)
        }
    }

    fn same(image: Vec<u8>) -> Vec<u8> {
        image
    }

    fn replaced(from: &'static str, to: &'static str) -> impl Fn(Vec<u8>) -> Vec<u8> {
        assert_eq!(from.len(), to.len());
        move |mut image| {
            let at = image.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            image[at..at + to.len()].copy_from_slice(to.as_bytes());
            image
        }
    }

    fn found(outcome: Outcome) -> (Origin, Findings) {
        let (document, origin, warnings) = outcome.document().unwrap();
        let secret = document.value(properties::find(properties::DEPLOYMENT_SECRET).unwrap()).unwrap();
        assert!(secret.is_some(), "found without its secret");
        (origin, warnings)
    }

    fn codes(outcome: Outcome) -> Vec<String> {
        match outcome {
            Outcome::Refused(findings) => findings.iter().map(|finding| finding.code.clone()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_source_alone_is_sufficient() {
        assert_eq!(found(Bench::new().read(Some(GOOD))).0, Origin::GuestInfo);
        let bench = Bench::new().cdrom(same);
        assert_eq!(found(bench.read(None)).0, Origin::Medium(bench.media[0].clone()));
        assert_eq!(found(bench.read(Some(""))).0, Origin::Medium(bench.media[0].clone()));
    }

    #[test]
    fn environment_that_may_still_come_is_absent() {
        let mut bench = Bench::new().cdrom(|_| vec![0; 100_000]).cdrom(replaced("OVF_ENV", "OTHER__"));
        bench.media.push(bench.directory.path().join("no-such-drive"));
        let bare = r#"<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1"/>"#;
        for guestinfo in [None, Some(""), Some("NULL"), Some(bare)] {
            let Outcome::Absent { looked } = bench.read(guestinfo) else { panic!("{guestinfo:?}") };
            assert_eq!(looked.len(), 3 + usize::from(guestinfo.is_some()));
        }
        let findings = Bench::new().read(None).document().unwrap_err();
        assert_eq!(findings.iter().next().unwrap().code, "environment.absent");
    }

    #[test]
    fn drive_is_opened_without_waiting() {
        let bench = Bench::new();
        // Without O_NONBLOCK the open waits for a writer, as an optical drive would close its tray.
        let path = bench.directory.path().join("sr0");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            tell.send(matches!(read(None::<&mut GuestInfo<Hypervisor>>, &[path]), Outcome::Refused(_)))
        });
        assert!(told.recv_timeout(Duration::from_secs(20)).expect("it is still being opened"), "it cannot be read");
    }

    #[test]
    fn invalid_environment_is_refused() {
        assert_eq!(codes(Bench::new().read(Some("<a>"))), ["environment.truncated"]);
        let bench = Bench::new().cdrom(|image| image[..38_000].to_vec());
        assert_eq!(codes(bench.read(None)), ["environment.medium-unreadable"]);
        assert_eq!(codes(bench.read(Some("<a>"))), ["environment.truncated", "environment.medium-unreadable"]);
        let bench = Bench::new().cdrom(replaced("</Environment>", "</environment>"));
        assert_eq!(codes(bench.read(None)), ["environment.malformed"]);
    }

    #[test]
    fn refusing_hypervisor_differs_from_an_absent_environment() {
        let mut hypervisor = Hypervisor::default();
        hypervisor.refusals = (1..100).collect();
        let outcome = read(Some(&mut GuestInfo::new(hypervisor)), &[]);
        assert_eq!(codes(outcome), ["environment.guestinfo-unreadable"]);
    }

    #[test]
    fn valid_source_is_used_and_invalid_one_reported() {
        let bench = Bench::new().cdrom(|image| image[..38_000].to_vec());
        let (origin, warnings) = found(bench.read(Some(GOOD)));
        assert_eq!(origin, Origin::GuestInfo);
        assert_eq!(warnings.iter().next().unwrap().code, "environment.source-ignored");
        assert!(!warnings.has_errors());
    }

    #[test]
    fn complete_source_replaces_an_equal_scrubbed_one() {
        let bench = Bench::new().cdrom(same);
        assert_eq!(found(bench.read(Some(GOOD))).0, Origin::GuestInfo);
        let scrubbed = document::scrubbed(GOOD.as_bytes()).unwrap().unwrap();
        assert_eq!(found(bench.read(Some(&scrubbed))).0, Origin::Medium(bench.media[0].clone()));
    }

    #[test]
    fn scrubbed_document_hides_no_other_source() {
        let bench = Bench::new().cdrom(replaced("\"192.168.10.1\"", "\"192.168.10.2\""));
        let scrubbed = document::scrubbed(GOOD.as_bytes()).unwrap().unwrap();
        assert_eq!(found(bench.read(Some(&scrubbed))).0, Origin::Medium(bench.media[0].clone()));
        assert_eq!(codes(bench.read(Some(GOOD))), ["environment.conflict"]);
        // A form whose secret was never set is not marked as scrubbed.
        let secret = Document::parse(GOOD.as_bytes()).unwrap();
        let secret =
            secret.value(properties::find(properties::DEPLOYMENT_SECRET).unwrap()).unwrap().unwrap().to_owned();
        let unfilled = scrubbed[..scrubbed.rfind("<!--").unwrap()].to_owned();
        assert!(!unfilled.contains(&secret));
        assert_eq!(codes(bench.read(Some(&unfilled))), ["environment.conflict"]);
        let two = Bench::new().cdrom(replaced("\"192.168.10.1\"", "\"192.168.10.2\""));
        let two = two.cdrom(|image| image[..38_000].to_vec());
        let (origin, warnings) = found(two.read(Some(&scrubbed)));
        assert_eq!(origin, Origin::Medium(two.media[0].clone()));
        assert_eq!(warnings.iter().next().unwrap().code, "environment.source-ignored");
        let bad = Bench::new().cdrom(|image| image[..38_000].to_vec());
        assert_eq!(codes(bad.read(Some(&scrubbed))), ["environment.medium-unreadable"]);
    }

    #[test]
    fn conflict_of_sources_names_only_the_keys() {
        let bench =
            Bench::new().cdrom(replaced("oe:value=\"cp1\"", "oe:value=\"cp7\"")).cdrom(replaced("x7$Qm", "x7$Qn"));
        let Outcome::Refused(findings) = bench.read(Some(GOOD)) else { panic!() };
        let text = findings.to_string();
        assert!(
            text.contains("sr0 differ in node-name.") && text.contains("sr1 differ in deployment-secret."),
            "{text}"
        );
        // The text is longer than what the path of a temporary directory can contain by chance.
        assert!(!text.contains("x7$Q"), "{text}");
    }

    #[test]
    fn content_may_be_xml_or_an_image() {
        let bench = Bench::new().cdrom(same);
        assert!(from_content(GOOD.as_bytes(), "x").is_ok());
        assert!(from_content(&std::fs::read(&bench.media[0]).unwrap(), "x").is_ok());
        let code = |content: &[u8]| from_content(content, "x").unwrap_err().iter().next().unwrap().code.clone();
        assert_eq!(code(b"hello"), "environment.malformed");
        assert_eq!(code(b""), "environment.malformed");
    }
}
