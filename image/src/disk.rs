//! The system disk: GPT with the EFI system partition, the root and its hash tree. systemd-repart makes it without
//! loop devices. The rest stays free for the scratch partition, which the first boot creates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::root_image::RootImage;
use crate::spec::Disk;

/// Makes the disk, or finds it in the cache. Fails if the partitions do not fit.
pub fn make(disk: &Disk, kernel_image: &Path, root: &RootImage, context: &BuildContext<'_>) -> Result<PathBuf> {
    let &BuildContext { tools, cache, progress, epoch } = context;
    let key = Key::of(Stage::DISK)
        .text("disk", format!("{} {}", disk.capacity, disk.esp))
        .text("kernel image", cache.name_of(kernel_image)?)
        .text("root", cache.name_of(&root.erofs)?)
        .text("epoch", epoch.to_string())
        .key("tools", tools.key())
        .finish();
    let place = cache.stage(&key, progress, |directory| {
        let work = cache.work()?;
        let definitions = work.path().join("repart.d");
        fs::create_dir(&definitions).context("writing partition definitions")?;
        for (name, text) in definitions_of(disk, root)? {
            fs::write(definitions.join(name), text).context("writing partition definitions")?;
        }
        tools
            .run("systemd-repart")
            .writes_at(directory, "/out")
            .reads_at(&definitions, "/repart.d")
            .reads_at(kernel_image, "/in/kernel.efi")
            .reads_at(&root.erofs, "/in/root.erofs")
            .reads_at(&root.verity, "/in/root.verity")
            .tool()
            .env("SOURCE_DATE_EPOCH", epoch.to_string())
            .args(["--empty=create", "--offline=yes", "--dry-run=no", "--no-pager", "--definitions=/repart.d"])
            // Without this option, the FAT has sectors of 4096 bytes, which firmware cannot read from a disk with
            // 512.
            .arg("--sector-size=512")
            .arg(format!("--size={}", disk.capacity))
            .arg(format!("--seed={}", identifier(&root.hash[..32])))
            .arg("/out/disk.raw")
            .run(progress)
    })?;
    Ok(place.join("disk.raw"))
}

/// Definitions of the partitions (repart.d(5)). The UUIDs of root and hash tree are the halves of the root hash: the
/// initial root finds them by it (The Discoverable Partitions Specification).
fn definitions_of(disk: &Disk, root: &RootImage) -> Result<[(&'static str, String); 3]> {
    let esp = format!(
        "[Partition]\nType=esp\nLabel=kaas-esp\nFormat=vfat\nCopyFiles=/in/kernel.efi:/EFI/BOOT/BOOTX64.EFI\n\
         SizeMinBytes={0}\nSizeMaxBytes={0}\n",
        disk.esp
    );
    let copied = |kind: &str, label: &str, file: &Path, half: &str| -> Result<String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let bytes = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
        // The rest of the disk stays free.
        let size = bytes.next_multiple_of(PARTITION_GRAIN);
        let identifier = identifier(half);
        Ok(format!(
            "[Partition]\nType={kind}\nLabel={label}\nCopyBlocks=/in/{name}\nUUID={identifier}\nReadOnly=yes\n\
             SizeMinBytes={size}\nSizeMaxBytes={size}\n",
        ))
    };
    let (root_half, verity_half) = root.hash.split_at(32);
    Ok([
        ("10-esp.conf", esp),
        ("20-root.conf", copied("root-x86-64", "kaas-root", &root.erofs, root_half)?),
        ("30-verity.conf", copied("root-x86-64-verity", "kaas-root-verity", &root.verity, verity_half)?),
    ])
}

/// Partitions are aligned to one MiB.
const PARTITION_GRAIN: u64 = 1 << 20;

/// Formats 32 hexadecimal digits as a UUID.
fn identifier(digits: &str) -> String {
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Compression;

    #[test]
    fn partitions_carry_the_halves_of_the_root_hash() {
        let directory = tempfile::tempdir().unwrap();
        let (erofs, verity) = (directory.path().join("root.erofs"), directory.path().join("root.verity"));
        fs::write(&erofs, vec![0; 3 << 20]).unwrap();
        fs::write(&verity, vec![0; 4096]).unwrap();
        let hash = "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef".to_owned();
        let disk = Disk { capacity: 1 << 34, esp: 1 << 27, compression: Compression::None };
        let image = RootImage { erofs, verity, hash, log: PathBuf::new() };
        let [(_, esp), (_, root), (_, verity)] = definitions_of(&disk, &image).unwrap();
        assert!(esp.contains("SizeMinBytes=134217728\n"), "{esp}");
        assert!(root.contains("UUID=00112233-4455-6677-8899-aabbccddeeff\n"), "{root}");
        assert!(root.contains("SizeMaxBytes=3145728\n"), "{root}");
        assert!(verity.contains("UUID=01234567-89ab-cdef-0123-456789abcdef\n"), "{verity}");
        assert!(verity.contains("SizeMaxBytes=1048576\n"), "{verity}");
    }
}
