//! The unified kernel image: kernel, initial root and command line in one EFI program. It fixes the root hash,
//! because the firmware starts it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::initial_root;
use crate::kernel::UnpackedKernel;
use crate::root_image::RootImage;
use crate::spec::Spec;
use crate::tree::Tree;

/// The EFI program of the tools tree that ukify adds the parts to.
pub const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// Assembles the kernel image from the kernel and the initial root, or finds it in the cache.
pub fn assemble(
    spec: &Spec,
    root: &Tree,
    initial: &Tree,
    kernel: &UnpackedKernel,
    image: &RootImage,
    context: &BuildContext<'_>,
) -> Result<PathBuf> {
    let &BuildContext { tools, cache, progress, epoch } = context;
    let command_line = command_line(&spec.kernel.command_line, &image.hash);
    let key = initial.add_to_key(Key::of(Stage::KERNEL_IMAGE), cache)?;
    let key = key.text("kernel", cache.name_of(&kernel.vmlinuz)?).text("command line", &command_line);
    let key = key.text("epoch", epoch.to_string()).key("tools", tools.key()).finish();
    let place = cache.stage(&key, progress, |directory| {
        fs::write(directory.join("initrd.cpio"), initial_root::archive(initial, epoch)?)
            .context("writing the initial root")?;
        fs::write(directory.join("cmdline"), &command_line).context("writing the kernel's command line")?;
        fs::write(directory.join("os-release"), root.read("usr/lib/os-release")?).context("writing os-release")?;
        let run = |program: &str| tools.run(program).writes_at(directory, "/out").tool();
        // The output does not depend on the number of threads. -12 takes twice as long for one per cent less.
        run("zstd").args(["--quiet", "--rm", "-9", "-T0", "/out/initrd.cpio"]).run(progress)?;
        tools
            .run("ukify")
            .writes_at(directory, "/out")
            .reads_at(&kernel.vmlinuz, "/kernel")
            .tool()
            .env("SOURCE_DATE_EPOCH", epoch.to_string())
            .args(["build", "--linux=/kernel", "--initrd=/out/initrd.cpio.zst", "--cmdline=@/out/cmdline"])
            .args(["--os-release=@/out/os-release", "--output=/out/kernel.efi"])
            .arg(format!("--uname={}", kernel.release))
            .arg(format!("--stub={STUB}"))
            .run(progress)?;
        // The EFI system partition stores the time of the file.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
        let made = File::open(directory.join("kernel.efi")).context("opening the kernel image")?;
        made.set_modified(time).context("setting the kernel image's time")
    })?;
    Ok(place.join(Path::new("kernel.efi")))
}

/// The spec's parameters, and those for the root: systemd-veritysetup-generator(8) finds partitions whose UUIDs are
/// the halves of the root hash.
fn command_line(parameters: &[String], hash: &str) -> String {
    let root = [
        "root=/dev/mapper/root".to_owned(),
        "rootfstype=erofs".to_owned(),
        "ro".to_owned(),
        format!("roothash={hash}"),
    ];
    root.iter().chain(parameters).map(String::as_str).collect::<Vec<_>>().join(" ")
}
