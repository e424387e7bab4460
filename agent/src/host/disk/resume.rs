use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use contract::bios_uuid::BiosUuid;

use super::blank;
use super::device::Disk;
use super::layout::{self, Progress};
use super::slots::{Preparation, SLOT_SIZE};
use crate::host::command::{Command, Error, Runner};

/// Whether an interrupted preparation may continue: only a preparation by this VM can have written the content of the
/// disk. Otherwise returns the reason.
pub(super) fn may_resume(
    disk: &Disk,
    preparation: &Preparation,
    own: Option<BiosUuid>,
    runner: &dyn Runner,
) -> io::Result<Result<(), String>> {
    if preparation.holder.is_some() && preparation.holder != own {
        return Ok(Err("another VM began it".to_owned()));
    }
    if layout::table_progress(&disk.path, preparation.disk, disk.size, disk.sector)? == Progress::Foreign {
        return Ok(Err("another partition table was written since".to_owned()));
    }
    let file = File::open(&disk.path)?;
    // An interrupted write of the identity leaves any content in slot B, but nothing outside it.
    let slot_end = |slot: u64| slot + SLOT_SIZE as u64;
    let between = [
        (slot_end(layout::IDENTITY_A), layout::IDENTITY_B),
        (slot_end(layout::IDENTITY_B), layout::LUKS_HEADER),
        (layout::LUKS_HEADER, layout::DATA),
    ];
    for (start, end) in between {
        if let Some(place) = blank::first_content(&file, start, end)? {
            return Ok(Err(format!("there is data at byte {place}, where a preparation writes nothing")));
        }
    }
    Ok(never_mounted(&file, preparation).and_then(|whole| if whole { Ok(()) } else { nothing_known(disk, runner) }))
}

/// Reads the ext4 superblock (kernel documentation, "ext4 Data Structures", super block). False if it does not exist.
fn never_mounted(file: &File, preparation: &Preparation) -> Result<bool, String> {
    let mut block = [0; 1024];
    file.read_exact_at(&mut block, layout::DATA + 1024).map_err(|error| error.to_string())?;
    if block[0x38..0x3a] != [0x53, 0xef] {
        return Ok(false);
    }
    let unused = block[0x2c..0x30] == [0; 4] && block[0x34..0x36] == [0; 2];
    if block[0x68..0x78] != *preparation.data.as_bytes() {
        return Err("its data partition holds another file system".to_owned());
    }
    if unused { Ok(true) } else { Err("its data partition has been mounted".to_owned()) }
}

/// An interrupted mkfs leaves no superblock: blkid finds nothing and exits with 2. That alone is not sufficient,
/// because it does the same for an unreadable disk. Here the record proves that the disk was blank.
fn nothing_known(disk: &Disk, runner: &dyn Runner) -> Result<(), String> {
    let offset = layout::DATA.to_string();
    let probe = Command::new("blkid").args(["-p", "-o", "export", "--offset", &offset]).arg(&disk.path);
    match runner.run(&probe) {
        Err(Error::Failed { status, .. }) if status.code() == Some(2) => Ok(()),
        Err(error) => Err(format!("the content of its data partition is unknown: {error}")),
        Ok(found) => {
            let found = String::from_utf8_lossy(&found).lines().collect::<Vec<_>>().join(", ");
            Err(format!("its data partition holds something else: {found}"))
        }
    }
}
