//! `kaas ova …`: shows and checks OVAs, and converts disks to VMDKs and back.

use std::fs;
use std::path::{Path, PathBuf};

use ::ova::archive::{LenientArchive, Report, Warning};
use ::ova::signature::{PublicKey, Signature};
use ::ova::vmdk;
use anyhow::{Context, Result};
use clap::Subcommand;
use fleet::nodes::clean;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::control::number;
use crate::output::{self, Output};

/// Commands on OVAs.
#[derive(Subcommand)]
pub enum Ova {
    /// Show what an OVA of any vendor is: product, hardware, disks, properties, publisher. Verifies nothing
    #[command(after_help = "Example: `kaas ova inspect kaas-tenant-0.2.0.ova`")]
    Inspect {
        /// OVA
        ova: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Read all of an OVA of any vendor and check it: files against the manifest, disks against the descriptor, the manifest against a publisher
    ///
    /// Each streamOptimized VMDK is decoded, grain by grain. The exit status is 1 if a file is damaged or breaks the rules
    /// of OVF (DSP0243). It is 0 with warnings about what OVF allows and vSphere refuses or ignores.
    ///
    /// If the list of parts NAME.spdx.json is next to the OVA, its signature NAME.spdx.cert is checked too. With
    /// `--publisher` a list without a signature is refused.
    #[command(after_help = "Example: `kaas ova verify kaas-tenant-0.2.0.ova --publisher publisher.pem`")]
    Verify {
        /// OVA
        ova: PathBuf,
        /// Publisher's certificate or public key in PEM: the OVA must be signed with it
        #[arg(long, value_name = "FILE")]
        publisher: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Compress a raw disk into a streamOptimized VMDK
    #[command(after_help = "Example: `kaas ova pack disk.raw disk.vmdk`")]
    Pack {
        /// Raw disk: a file whose size is a multiple of 64 KiB
        raw: PathBuf,
        /// VMDK to write. It appears once it is complete
        vmdk: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Convert a streamOptimized VMDK back into a raw disk
    #[command(after_help = "Example: `kaas ova unpack disk.vmdk disk.raw`")]
    Unpack {
        /// VMDK
        vmdk: PathBuf,
        /// Raw disk to write: a new, sparse file
        raw: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

pub fn run(command: Ova) -> Result<()> {
    match command {
        Ova::Inspect { ova, output } => inspect(&ova, output),
        Ova::Verify { ova, publisher, output } => verify(&ova, publisher.as_deref(), output),
        Ova::Pack { raw, vmdk, output } => pack(&raw, vmdk, output),
        Ova::Unpack { vmdk, raw, output } => unpack(&vmdk, raw, output),
    }
}

/// The output of `inspect`: the facts that an OVA states about itself.
#[derive(Serialize, JsonSchema)]
pub struct Facts<'a> {
    name: &'a str,
    /// Name of the product. Empty if the OVA has none.
    product: &'a str,
    /// Version of the product. Empty if the OVA has none.
    version: &'a str,
    /// Fingerprint of the key that the signature claims. The command does not verify it.
    claimed_publisher: Option<String>,
    members: Vec<MemberFacts<'a>>,
    disks: Vec<DiskFacts<'a>>,
    /// One without an identifier if the hardware is fixed.
    profiles: Vec<ProfileFacts<'a>>,
    properties: Vec<PropertyFacts<'a>>,
    warnings: Vec<WarningFacts<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct MemberFacts<'a> {
    name: &'a str,
    /// Size in bytes.
    size: u64,
}

#[derive(Serialize, JsonSchema)]
struct DiskFacts<'a> {
    id: &'a str,
    /// Capacity in bytes.
    capacity: Option<u64>,
    /// The property that sets the capacity.
    capacity_property: Option<&'a str>,
    /// The file with the content. Missing for an empty disk.
    file: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct ProfileFacts<'a> {
    id: Option<&'a str>,
    label: &'a str,
    default: bool,
    cpus: Option<u32>,
    memory_mib: Option<u64>,
    disks: &'a [String],
}

#[derive(Serialize, JsonSchema)]
struct PropertyFacts<'a> {
    key: String,
    label: &'a str,
    default: Option<&'a str>,
    password: bool,
}

#[derive(Serialize, JsonSchema)]
struct WarningFacts<'a> {
    code: &'a str,
    message: &'a str,
}

/// The output of `verify`.
#[derive(Serialize, JsonSchema)]
pub struct VerifiedOva<'a> {
    /// Path of the OVA.
    ova: String,
    /// Fingerprint of the publisher's key. `null` if no publisher was given.
    signed_by: Option<String>,
    /// Path of the list of parts that the publisher has signed.
    signed_sbom: Option<String>,
    warnings: Vec<WarningFacts<'a>>,
}

fn inspect(path: &Path, output: Output) -> Result<()> {
    let archive = LenientArchive::open(path)?;
    let report = archive.inspect()?;
    let facts = facts(&archive, &report);
    let values = serde_json::to_value(&facts)?;
    output.result(&facts, || text(&values)).map(drop)
}

fn warnings(warnings: &[Warning]) -> Vec<WarningFacts<'_>> {
    warnings.iter().map(|warning| WarningFacts { code: warning.code, message: &warning.message }).collect()
}

/// The facts that an archive states about itself.
fn facts<'a>(archive: &'a LenientArchive, report: &'a Report) -> Facts<'a> {
    let envelope = &report.envelope;
    let members = archive.members().iter().map(|member| MemberFacts { name: &member.name, size: member.size });
    let disks = envelope.disks.iter().map(|disk| DiskFacts {
        id: &disk.id,
        capacity: disk.capacity,
        capacity_property: disk.capacity_property.as_deref(),
        file: disk.file.as_deref(),
    });
    let properties = envelope.products.iter().flat_map(|product| {
        product.properties().map(move |property| PropertyFacts {
            key: product.environment_key(property),
            label: &property.label,
            default: property.default.as_deref(),
            password: property.password,
        })
    });
    let profiles = envelope.variants.iter().map(|variant| ProfileFacts {
        id: variant.id.as_deref(),
        label: &variant.label,
        default: variant.default,
        cpus: variant.cpus,
        memory_mib: variant.memory_mib,
        disks: &variant.disks,
    });
    let product = envelope.products.first();
    Facts {
        name: &envelope.name,
        product: product.map_or("", |product| product.name.as_str()),
        version: product.map_or("", |product| product.version.as_str()),
        claimed_publisher: report.claimed_key.as_ref().map(|key| key.fingerprint().to_string()),
        members: members.collect(),
        disks: disks.collect(),
        profiles: profiles.collect(),
        properties: properties.collect(),
        warnings: warnings(&report.warnings),
    }
}

fn text(facts: &Value) -> String {
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    let rows = |key: &str| facts[key].as_array().cloned().unwrap_or_default();
    // A descriptor of another vendor may leave numbers out.
    let mib = |value: &Value| number(&value.as_u64().map(|bytes| bytes >> 20).into());
    let mut text = format!("{} {} ({})\n", word(&facts["product"]), word(&facts["version"]), word(&facts["name"]));
    text += &match facts["claimed_publisher"].as_str() {
        Some(fingerprint) => format!("says that the key {fingerprint} signed it; `kaas ova verify` checks that\n"),
        None if rows("warnings").iter().any(|warning| warning["code"] == "signature") => {
            "signed in a form that `kaas ova verify` does not check\n".to_owned()
        }
        None => "not signed\n".to_owned(),
    };
    for member in rows("members") {
        text += &format!("member    {:>10} bytes  {}\n", member["size"], word(&member["name"]));
    }
    for disk in rows("disks") {
        let mut content = disk["file"].as_str().map_or("empty".to_owned(), clean);
        if !disk["capacity_property"].is_null() {
            content += &format!(", its capacity is the property {}", word(&disk["capacity_property"]));
        }
        text += &format!("disk      {:>10} MiB    {}, {content}\n", mib(&disk["capacity"]), word(&disk["id"]));
    }
    for profile in rows("profiles") {
        let disks = profile["disks"].as_array().into_iter().flatten().map(word).collect::<Vec<_>>().join(", ");
        let (id, cpus, memory) = (word(&profile["id"]), number(&profile["cpus"]), number(&profile["memory_mib"]));
        let kind = if profile["id"].is_null() { "hardware" } else { "profile " };
        let chosen = if !profile["id"].is_null() && profile["default"] == true { ", the default" } else { "" };
        text += &format!("{kind}  {id:24} {cpus:>3} vCPU {memory:>7} MiB  {disks}{chosen}\n");
    }
    for property in rows("properties") {
        text += &format!("property  {:24} {}\n", word(&property["key"]), word(&property["label"]));
    }
    for warning in rows("warnings") {
        text += &format!("warning   {}\n", word(&warning["message"]));
    }
    text
}

fn verify(path: &Path, publisher: Option<&Path>, output: Output) -> Result<()> {
    let archive = LenientArchive::open(path)?;
    let trusted = publisher
        .map(|file| {
            let pem = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            PublicKey::from_pem(&pem).with_context(|| format!("using {} as the publisher's key", file.display()))
        })
        .transpose()?;
    let report = archive.verify()?;
    let sbom = match &trusted {
        None => None,
        Some(key) => {
            archive.verify_signature(key)?;
            verify_sbom(path, key)?
        }
    };
    let verified = VerifiedOva {
        ova: path.to_string_lossy().into_owned(),
        signed_by: trusted.as_ref().map(|key| key.fingerprint().to_string()),
        signed_sbom: sbom.as_deref().map(|path| path.to_string_lossy().into_owned()),
        warnings: warnings(&report.warnings),
    };
    if output.value(&verified)? {
        return Ok(());
    }
    for warning in &report.warnings {
        output::warn(&format!("warning: {}", clean(&warning.message)));
    }
    let state = if report.warnings.is_empty() { "whole, with its disks" } else { "read, but see the warnings" };
    match trusted {
        None => say!("{}: {state}; who made it was not checked", path.display()),
        Some(key) => say!("{}: {state}, and signed with the key {}", path.display(), key.fingerprint()),
    }
    if let Some(sbom) = sbom {
        say!("{}: signed with the same key", sbom.display());
    }
    Ok(())
}

/// Checks that a publisher signed the list of parts next to an OVA, and returns its path. None if there is no list.
fn verify_sbom(ova: &Path, key: &PublicKey) -> Result<Option<PathBuf>> {
    let (file, certificate) = ::ova::archive::sbom_of(ova);
    let document = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("reading {}", file.display()))?,
    };
    let refused =
        || format!("the list of parts {} is not signed by the publisher: fetch it again, or remove it", file.display());
    let signed = fs::read_to_string(&certificate)
        .with_context(|| format!("reading {}", certificate.display()))
        .with_context(refused)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Signature::parse(&signed).and_then(|signature| signature.verify(&name, &document, key)).with_context(refused)?;
    Ok(Some(file))
}

/// The output of `pack` and `unpack`. Sizes are in bytes.
#[derive(Serialize, JsonSchema)]
pub struct ConvertedDisk {
    /// Path of the written file.
    path: PathBuf,
    /// Size of the disk for a guest.
    capacity: u64,
    /// Size of the parts that hold data.
    populated: u64,
    /// Size of the VMDK that `pack` has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

impl ConvertedDisk {
    fn text(&self) -> String {
        let Self { path, capacity, populated, size } = self;
        let written = size.map(|size| format!(", {size} written")).unwrap_or_default();
        format!("{}: {populated} of {capacity} bytes hold data{written}", path.display())
    }
}

fn pack(raw: &Path, vmdk: PathBuf, output: Output) -> Result<()> {
    let vmdk::WrittenDisk { capacity, populated, size } =
        vmdk::from_raw(raw, &vmdk, &vmdk::Options::default(), &mut |_| {})?;
    let disk = ConvertedDisk { path: vmdk, capacity, populated, size: Some(size) };
    output.result(&disk, || disk.text()).map(drop)
}

fn unpack(vmdk: &Path, raw: PathBuf, output: Output) -> Result<()> {
    let contents = vmdk::to_raw(vmdk, &raw).with_context(|| format!("unpacking {}", vmdk.display()))?;
    let disk = ConvertedDisk { path: raw, capacity: contents.capacity, populated: contents.populated, size: None };
    output.result(&disk, || disk.text()).map(drop)
}
