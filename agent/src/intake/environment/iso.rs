//! Reads one file from the root directory of an ISO 9660 image (ECMA-119), without mounting it. The file may have a
//! plain, Rock Ridge (IEEE P1282) or Joliet name.
//!
//! Every length in the image is limited before it is used. This module does not depend on the file's content.

use std::io::{self, Read, Seek, SeekFrom};

/// Size of a sector (ECMA-119, section 6.1.2). Each volume descriptor has one.
const SECTOR: usize = 2048;
/// The first volume descriptor's sector (ECMA-119, section 6.2.1).
const FIRST_DESCRIPTOR: u64 = 16;
/// Most volume descriptors that are read.
const MOST_DESCRIPTORS: u64 = 64;
/// Largest root directory that is read, in bytes. It fits thousands of entries.
const LARGEST_DIRECTORY: usize = 1 << 20;
/// Most continuation areas of one entry that are read (SUSP, section 5.1) …
const MOST_CONTINUATIONS: usize = 32;
/// … and of all entries together, because a drive is slow for each.
const MOST_AREAS: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it holds no ISO 9660 file system")]
    NotIso,
    /// The file is larger than the caller's limit.
    #[error("the file has {size} bytes, more than {limit}")]
    TooLarge {
        /// Size in bytes.
        size: u64,
        limit: usize,
    },
    #[error("its ISO 9660 file system is damaged: {0}")]
    Damaged(&'static str),
    #[error("reading it: {0}")]
    Io(#[from] io::Error),
}

/// Reads the file `name` from the root directory, ignoring case. `None` if it does not exist.
pub fn read_file(image: &mut (impl Read + Seek), name: &str, limit: usize) -> Result<Option<Vec<u8>>, Error> {
    let mut areas = MOST_AREAS;
    for volume in volumes(image)? {
        let directory = volume.extent(image, &volume.root, LARGEST_DIRECTORY)?;
        if let Some(entry) = volume.find(image, &directory, name, &mut areas)? {
            return volume.extent(image, &entry, limit).map(Some);
        }
    }
    Ok(None)
}

/// A primary volume or a Joliet one.
struct Volume {
    joliet: bool,
    /// Size of a logical block, in bytes.
    block: u64,
    root: Entry,
}

/// The place of a file's or a directory's data.
struct Entry {
    /// Start in logical blocks.
    start: u64,
    /// Size in bytes.
    size: u64,
}

/// The volumes with file names, the primary one first.
fn volumes(image: &mut (impl Read + Seek)) -> Result<Vec<Volume>, Error> {
    let mut volumes = Vec::new();
    for number in 0..MOST_DESCRIPTORS {
        let descriptor = match read(image, (FIRST_DESCRIPTOR + number) * SECTOR as u64, SECTOR) {
            Err(Error::Io(error)) if number == 0 && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Error::NotIso);
            }
            other => other?,
        };
        // ECMA-119, section 8.1: type, "CD001", version.
        if &descriptor[1..6] != b"CD001" {
            return if number == 0 {
                Err(Error::NotIso)
            } else {
                Err(Error::Damaged("a volume descriptor is missing"))
            };
        }
        let joliet = match (descriptor[0], &descriptor[88..91]) {
            (1, _) => false,
            // The escape sequences of UCS-2 levels 1 to 3 (Joliet, "Identifying a Joliet SVD").
            (2, b"%/@" | b"%/C" | b"%/E") => true,
            (255, _) => break,
            _ => continue,
        };
        let block = u64::from(u16::from_le_bytes([descriptor[128], descriptor[129]]));
        if !matches!(block, 512 | 1024 | 2048) {
            return Err(Error::Damaged("the logical block size is invalid"));
        }
        let root = record(&descriptor[156..190]).ok_or(Error::Damaged("the root directory's record is too short"))?;
        volumes.push(Volume { joliet, block, root: root.entry()? });
    }
    Ok(volumes)
}

impl Volume {
    /// The data of an entry, at most `limit` bytes.
    fn extent(&self, image: &mut (impl Read + Seek), entry: &Entry, limit: usize) -> Result<Vec<u8>, Error> {
        if entry.size > limit as u64 {
            return Err(Error::TooLarge { size: entry.size, limit });
        }
        read(image, entry.start * self.block, entry.size as usize)
    }

    /// Searches a directory. `areas` is the number of continuation areas that may still be read.
    fn find(
        &self,
        image: &mut (impl Read + Seek),
        directory: &[u8],
        name: &str,
        areas: &mut usize,
    ) -> Result<Option<Entry>, Error> {
        // Records do not cross sectors. Zeros fill a sector's end (ECMA-119, section 6.8.1.1).
        for sector in directory.chunks(SECTOR) {
            let mut rest = sector;
            while let Some(record) = record(rest) {
                rest = &rest[record.bytes.len()..];
                if !record.is_directory() && self.is_named(image, &record, name, areas)? {
                    return record.entry().map(Some);
                }
            }
        }
        Ok(None)
    }

    fn is_named(
        &self,
        image: &mut (impl Read + Seek),
        record: &Record<'_>,
        name: &str,
        areas: &mut usize,
    ) -> Result<bool, Error> {
        let identifier = if self.joliet {
            let units: Vec<u16> =
                record.identifier().chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        } else {
            String::from_utf8_lossy(record.identifier()).into_owned()
        };
        // ECMA-119, section 7.5: NAME.EXTENSION;VERSION. Strict writers turn dashes into underscores.
        let plain = identifier.split(';').next().unwrap_or_default().trim_end_matches('.');
        let strict = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
        if plain.eq_ignore_ascii_case(name) || (!self.joliet && plain.eq_ignore_ascii_case(&strict)) {
            return Ok(true);
        }
        if self.joliet {
            return Ok(false);
        }
        Ok(self.rock_ridge_name(image, record, areas)?.is_some_and(|long| long.eq_ignore_ascii_case(name)))
    }

    /// The alternate name (RRIP, section 4.1.4) in the system use area and its continuations.
    fn rock_ridge_name(
        &self,
        image: &mut (impl Read + Seek),
        record: &Record<'_>,
        areas: &mut usize,
    ) -> Result<Option<String>, Error> {
        let mut name: Option<Vec<u8>> = None;
        let mut area = record.system_use().to_vec();
        for _ in 0..MOST_CONTINUATIONS {
            let mut next = None;
            let mut rest = area.as_slice();
            // SUSP, section 4: signature, length of the whole field, version, data.
            while let [first, second, length, _version, ..] = rest {
                let Some((field, following)) = rest.split_at_checked(usize::from(*length)) else { break };
                if field.len() < 4 {
                    break;
                }
                rest = following;
                match [*first, *second] {
                    [b'N', b'M'] if field.len() > 5 => name.get_or_insert_default().extend(&field[5..]),
                    [b'C', b'E'] if field.len() >= 28 => {
                        let number = |at: usize| u64::from(little_endian(&field[at..]));
                        next = Some((number(4) * self.block + number(12), number(20) as usize));
                    }
                    [b'S', b'T'] => break,
                    _ => {}
                }
            }
            match next {
                Some((_, length)) if length > SECTOR => {
                    return Err(Error::Damaged("a continuation area is larger than a sector"));
                }
                Some((start, length)) => {
                    *areas = areas.checked_sub(1).ok_or(Error::Damaged("it has too many continuation areas"))?;
                    area = read(image, start, length)?;
                }
                None => break,
            }
        }
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }
}

/// A directory record (ECMA-119, section 9.1), long enough for its fixed part and its name.
struct Record<'a> {
    bytes: &'a [u8],
}

/// The record at the start of these bytes. `None` at the end of a sector, or if it does not fit.
fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let length = usize::from(*bytes.first()?);
    let bytes = bytes.get(..length)?;
    (length >= 34 && 33 + usize::from(bytes[32]) <= length).then_some(Record { bytes })
}

impl Record<'_> {
    fn is_directory(&self) -> bool {
        self.bytes[25] & 2 != 0
    }

    fn identifier(&self) -> &[u8] {
        &self.bytes[33..33 + usize::from(self.bytes[32])]
    }

    fn system_use(&self) -> &[u8] {
        let end = 33 + usize::from(self.bytes[32]);
        self.bytes.get(end + end % 2..).unwrap_or_default()
    }

    fn entry(&self) -> Result<Entry, Error> {
        let (attributes, flags, unit, gap) = (self.bytes[1], self.bytes[25], self.bytes[26], self.bytes[27]);
        if flags & 0x80 != 0 || unit != 0 || gap != 0 {
            return Err(Error::Damaged("the file is in several pieces"));
        }
        Ok(Entry {
            start: u64::from(little_endian(&self.bytes[2..])) + u64::from(attributes),
            size: little_endian(&self.bytes[10..]).into(),
        })
    }
}

fn little_endian(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn read(image: &mut (impl Read + Seek), start: u64, length: usize) -> Result<Vec<u8>, Error> {
    image.seek(SeekFrom::Start(start))?;
    let mut bytes = vec![0; length];
    image.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use flate2::read::GzDecoder;

    const NAME: &str = "ovf-env.xml";
    const LIMIT: usize = 1 << 20;

    /// Images of xorriso and genisoimage. The commands are in fixtures/iso/README.md.
    const IMAGES: &[(&str, &[u8])] = &[
        ("plain", include_bytes!("fixtures/iso/plain.iso.gz")),
        ("rock-ridge", include_bytes!("fixtures/iso/rock-ridge.iso.gz")),
        ("joliet", include_bytes!("fixtures/iso/joliet.iso.gz")),
        ("all-of-xorriso", include_bytes!("fixtures/iso/all-of-xorriso.iso.gz")),
        ("many-files", include_bytes!("fixtures/iso/many-files.iso.gz")),
    ];

    fn unpacked(name: &str) -> Vec<u8> {
        let (_, packed) = IMAGES.iter().find(|(image, _)| *image == name).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(*packed).read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn found(bytes: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        read_file(&mut Cursor::new(bytes), NAME, LIMIT)
    }

    #[test]
    fn images_of_each_kind_are_read() {
        for (name, _) in IMAGES {
            let content = found(unpacked(name)).unwrap().unwrap_or_else(|| panic!("{name}: not found"));
            assert_eq!(content, include_bytes!("fixtures/three-nodes.xml"), "{name}");
        }
    }

    #[test]
    fn names_are_matched_ignoring_case() {
        for (name, _) in IMAGES {
            let mut image = Cursor::new(unpacked(name));
            assert!(read_file(&mut image, "OVF-Env.XML", LIMIT).unwrap().is_some(), "{name}");
            assert!(read_file(&mut image, "ovf-env.xm", LIMIT).unwrap().is_none(), "{name}");
            assert!(read_file(&mut image, "", LIMIT).unwrap().is_none(), "{name}");
        }
    }

    #[test]
    fn larger_files_than_wanted_are_refused() {
        let mut image = Cursor::new(unpacked("joliet"));
        assert!(matches!(read_file(&mut image, NAME, 100), Err(Error::TooLarge { limit: 100, .. })));
    }

    #[test]
    fn other_content_is_not_an_iso() {
        for bytes in [vec![], vec![0; 100], vec![0; 40_000]] {
            assert!(matches!(found(bytes), Err(Error::NotIso)));
        }
    }

    #[test]
    fn truncated_image_is_an_error() {
        let whole = unpacked("rock-ridge");
        let end = whole.windows(20).position(|window| window == b"</Environment>\n\0\0\0\0\0").unwrap();
        for cut in [17 * SECTOR, 20 * SECTOR, end - 100] {
            assert!(matches!(found(whole[..cut].to_vec()), Err(Error::Io(_))), "{cut}");
        }
    }

    #[test]
    fn inconsistent_images_are_damaged() {
        let change = |at: usize, value: u8| {
            let mut bytes = unpacked("plain");
            bytes[at] = value;
            found(bytes)
        };
        let primary = 16 * SECTOR;
        assert!(matches!(change(primary + 129, 7), Err(Error::Damaged(_))), "block size");
        assert!(matches!(change(primary + 156, 3), Err(Error::Damaged(_))), "root record's length");
        assert!(matches!(change(primary + 156 + 25, 0x82), Err(Error::Damaged(_))), "several extents");
        assert!(matches!(change(primary + 156 + 13, 0xff), Err(Error::TooLarge { .. })), "root directory's size");
        assert!(matches!(change(primary + 156 + 5, 0xff), Err(Error::Io(_))), "root directory's place");
        assert!(matches!(change(17 * SECTOR + 1, b'X'), Err(Error::Damaged(_))), "no end of descriptors");
    }

    /// Thousands of entries, each with a continuation area that continues in itself. Reading all would take minutes.
    #[test]
    fn number_of_continuation_areas_is_limited() {
        const RECORD: usize = 62;
        const DIRECTORY: usize = 128;
        let entry = |identifier: &[u8], start: usize, size: usize, flags: u8| {
            let mut record = vec![0; 33];
            record[2..6].copy_from_slice(&u32::try_from(start).unwrap().to_le_bytes());
            record[10..14].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
            (record[25], record[32]) = (flags, u8::try_from(identifier.len()).unwrap());
            record.extend(identifier);
            record
        };
        let last = 18 + DIRECTORY;
        let mut continued = vec![0; 28];
        (continued[..4]).copy_from_slice(b"CE\x1c\x01");
        continued[4..8].copy_from_slice(&u32::try_from(last).unwrap().to_le_bytes());
        continued[20..24].copy_from_slice(&u32::try_from(SECTOR).unwrap().to_le_bytes());
        let mut image = vec![0; (last + 1) * SECTOR];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(16 * SECTOR, b"\x01CD001\x01");
        put(16 * SECTOR + 128, &2048_u16.to_le_bytes());
        put(16 * SECTOR + 156, &[34]);
        put(16 * SECTOR + 157, &entry(&[0], 18, DIRECTORY * SECTOR, 2)[1..]);
        put(17 * SECTOR, b"\xffCD001\x01");
        for place in (18 * SECTOR..last * SECTOR).step_by(SECTOR) {
            for number in 0..SECTOR / RECORD {
                let record = [entry(b"X", last, 1, 0), continued.clone()].concat();
                put(place + number * RECORD, &[62]);
                put(place + number * RECORD + 1, &record[1..]);
            }
        }
        put(last * SECTOR, &continued);

        struct Drive(Cursor<Vec<u8>>, usize);
        impl Read for Drive {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                self.1 += 1;
                self.0.read(to)
            }
        }
        impl Seek for Drive {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.0.seek(to)
            }
        }
        let mut drive = Drive(Cursor::new(image), 0);
        let read = read_file(&mut drive, NAME, LIMIT);
        assert!(matches!(read, Err(Error::Damaged("it has too many continuation areas"))), "{read:?}");
        assert!((MOST_AREAS..MOST_AREAS + 100).contains(&drive.1), "{} reads", drive.1);
    }

    #[test]
    fn fuzz_of_images() {
        use crate::fuzz::{Example, fuzz};

        // The descriptors and directories are between sectors 16 and 40.
        let example = |(name, _): &(&str, _)| Example::changed_in(unpacked(name), 16 * SECTOR..40 * SECTOR);
        let examples: Vec<Example> = IMAGES.iter().map(example).collect();
        fuzz("ISO 9660", 4 << 20, &examples, |bytes| {
            let read = read_file(&mut Cursor::new(bytes), NAME, LIMIT);
            assert!(!read.is_ok_and(|file| file.is_some_and(|file| file.len() > LIMIT)));
        });
    }
}
