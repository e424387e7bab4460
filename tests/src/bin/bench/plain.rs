//! A plain Debian to measure against: the suite and kernel of the appliance, with Debian's own initial root and
//! nothing of the appliance. The firmware finds its kernel image at the same path.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::cache::{Cache, Key, Stage};
use image::debian::bootstrap::{self, Form};
use image::debian::sources::{Settings, Sources};
use image::debian::{PackageSet, fetch, resolve};
use image::progress::Progress;
use image::spec::Spec;
use image::tools::ToolsTree;

const PACKAGES: [&str; 5] = ["dbus", "initramfs-tools", "login", "systemd-sysv", "udev"];
const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
const LABEL: &str = "plain-root";

/// A bootable disk.
pub struct Plain {
    /// The raw disk.
    pub disk: PathBuf,
    /// The kernel's package, with its version.
    pub kernel: String,
}

/// Makes the disk, or finds it made.
pub fn make(spec: &Spec, tools: &ToolsTree, settings: &Settings) -> Result<Plain> {
    let (cache, progress) = (Cache::of_user(lab::tools_in_use)?, Progress::on_stderr());
    let mut packages: Vec<String> = PACKAGES.map(str::to_owned).to_vec();
    packages.extend(spec.packages.kernel.clone());
    let set = PackageSet { suite: spec.packages.suite.clone(), packages, kernel: None };
    let lock = resolve::resolve(&set, &Sources::find(settings, Path::new("/"))?, &cache, &progress)?;
    let kernel = lock
        .packages
        .iter()
        .find(|package| package.name.starts_with("linux-image-6") || package.name.starts_with("linux-image-7"))
        .context("the packages hold no kernel")?;
    let kernel = format!("{} {}", kernel.name, kernel.version);
    let parameters = spec.kernel.command_line.join(" ");
    let key = bootstrap::add_to_key(Key::of(Stage::PLAIN_DEBIAN), &lock, &progress)?
        .text("parameters", &parameters)
        .key("tools", tools.key())
        .finish();
    let made = cache.stage(&key, &progress, |directory| {
        fetch::fetch(&lock, settings, &cache, &progress, "run it again")?;
        let work = cache.work()?;
        let root = work.path().join("root");
        bootstrap::bootstrap(&lock, Form::Directory, &root, &cache, &progress)?;
        let (vmlinuz, initrd) = (only(&root.join("boot"), "vmlinuz-")?, only(&root.join("boot"), "initrd.img-")?);
        tools
            .run("ukify")
            .writes_at(work.path(), "/out")
            .reads_at(&vmlinuz, "/kernel")
            .reads_at(&initrd, "/initrd")
            .tool()
            .args(["build", "--linux=/kernel", "--initrd=/initrd", "--output=/out/kernel.efi"])
            .arg(format!("--cmdline=root=LABEL={LABEL} ro {parameters}"))
            .arg(format!("--stub={STUB}"))
            .run(&progress)?;
        let definitions = work.path().join("repart.d");
        fs::create_dir(&definitions)?;
        let esp = "[Partition]\nType=esp\nFormat=vfat\nCopyFiles=/in/kernel.efi:/EFI/BOOT/BOOTX64.EFI\n\
                   SizeMinBytes=256M\nSizeMaxBytes=256M\n";
        let system = format!(
            "[Partition]\nType=root-x86-64\nLabel={LABEL}\nFormat=ext4\nCopyFiles=/in/root:/\nSizeMinBytes=2G\n"
        );
        fs::write(definitions.join("10-esp.conf"), esp)?;
        fs::write(definitions.join("20-root.conf"), system)?;
        tools
            .run("systemd-repart")
            .writes_at(directory, "/out")
            .reads_at(&definitions, "/repart.d")
            .reads_at(work.path(), "/in")
            .tool()
            .args(["--empty=create", "--offline=yes", "--dry-run=no", "--no-pager", "--definitions=/repart.d"])
            .args(["--sector-size=512", "--size=4G", "/out/disk.raw"])
            .run(&progress)
    })?;
    Ok(Plain { disk: made.join("disk.raw"), kernel })
}

fn only(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    found
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .with_context(|| format!("there is no {prefix} in {}", directory.display()))
}
