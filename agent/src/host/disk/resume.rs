//! Whether a preparation that was cut short may go on: nothing on the disk may be
//! anything that it cannot have left there itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use contract::bios_uuid::BiosUuid;

use super::blank;
use super::device::Disk;
use super::layout::{self, Progress};
use super::slots::{Preparation, SLOT_SIZE};
use crate::host::command::{Command, Error, Runner};

/// Whether an interrupted preparation may go on: all that is on the disk is
/// what a preparation by this VM can have left there. Otherwise says what is
/// in the way.
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
    // A cut write of the identity leaves anything in slot B, but nothing beside it.
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

/// Looks at the ext4 superblock of the data partition (kernel documentation,
/// "ext4 Data Structures", super block): whole and never mounted, or not there.
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

/// A file system whose making was cut short has no superblock yet: blkid finds
/// nothing and ends with 2. That alone would not do, since it says the same of a
/// disk that it cannot read; here the record proves that the disk was blank.
fn nothing_known(disk: &Disk, runner: &dyn Runner) -> Result<(), String> {
    let offset = layout::DATA.to_string();
    let probe = Command::new("blkid").args(["-p", "-o", "export", "--offset", &offset]).arg(&disk.path);
    match runner.run(&probe) {
        Err(Error::Failed { status, .. }) if status.code() == Some(2) => Ok(()),
        Err(error) => Err(format!("what its data partition holds cannot be told: {error}")),
        Ok(found) => {
            let found = String::from_utf8_lossy(&found).lines().collect::<Vec<_>>().join(", ");
            Err(format!("its data partition holds something else: {found}"))
        }
    }
}
