//! A .tar.gz with a size limit. Each text is first compressed by itself. A text that exceeds its share is cut to its newest or
//! its first part. Independent of the content.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The most that the archive itself takes, for each file beyond its content and once at its end, in compressed bytes.
const FRAME: u64 = 400;

/// The part of a text that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The end: logs.
    End,
    /// The beginning: lists.
    Beginning,
}

pub struct Archive<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    directory: String,
    time: u64,
    left: u64,
}

impl<W: Write> Archive<W> {
    /// Begins an archive of at most `limit` bytes. All files are in `directory` and have the time `time`, in seconds since
    /// 1970.
    pub fn new(writer: W, directory: &str, time: u64, limit: u64) -> Self {
        let tar = tar::Builder::new(GzEncoder::new(writer, Compression::default()));
        Self { tar, directory: directory.to_owned(), time, left: limit.saturating_sub(2 * FRAME) }
    }

    /// How much room is left, in compressed bytes.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Adds the part of a text that fits into `share` compressed bytes. Adds nothing if not even an empty file fits.
    /// Returns the number of bytes that were cut off. After an error the archive is of no use.
    pub fn add(&mut self, name: &str, text: &str, share: u64, keep: Keep) -> io::Result<usize> {
        let Some(share) = share.min(self.left).checked_sub(FRAME) else { return Ok(text.len()) };
        let (kept, taken) = fit(text, share, keep)?;
        let mut header = tar::Header::new_ustar();
        header.set_size(kept.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        self.tar.append_data(&mut header, format!("{}/{name}", self.directory), kept.as_bytes())?;
        self.left = self.left.saturating_sub(taken + FRAME);
        Ok(text.len() - kept.len())
    }

    pub fn finish(self) -> io::Result<W> {
        self.tar.into_inner()?.finish()
    }
}

/// The part of a text that compresses to at most `share` bytes, and its compressed size. Cut at line ends if there are any.
fn fit(text: &str, share: u64, keep: Keep) -> io::Result<(&str, u64)> {
    let mut kept = text;
    loop {
        let taken = compressed(kept)?;
        if taken <= share || kept.is_empty() {
            return Ok((kept, taken));
        }
        // Somewhat less than in proportion, so that it is seldom measured twice.
        let length = (kept.len() as u128 * u128::from(share) * 15 / 16 / u128::from(taken)) as usize;
        kept = cut(kept, length, keep);
    }
}

/// At most `length` bytes of a text, in whole lines if possible.
fn cut(text: &str, length: usize, keep: Keep) -> &str {
    if text.len() <= length {
        return text;
    }
    match keep {
        Keep::End => {
            let mut start = text.len() - length;
            while !text.is_char_boundary(start) {
                start += 1;
            }
            let part = &text[start..];
            part.find('\n').filter(|end| end + 1 < part.len()).map_or(part, |end| &part[end + 1..])
        }
        Keep::Beginning => {
            let mut end = length;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let part = &text[..end];
            part.rfind('\n').map_or(part, |end| &part[..=end])
        }
    }
}

/// The size of a text that is compressed by itself. Its part of a larger archive is not larger, except for a few bytes.
fn compressed(text: &str) -> io::Result<u64> {
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut encoder = GzEncoder::new(Count(0), Compression::default());
    encoder.write_all(text.as_bytes())?;
    let taken = encoder.finish()?.0;
    // The gzip blocks begin elsewhere in the whole archive.
    Ok(taken + taken / 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize) -> String {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b' ' + (state >> 24) as u8 % 95)
        };
        (0..length).map(|index| if index % 80 == 79 { '\n' } else { next() }).collect()
    }

    #[test]
    fn it_stays_below_its_limit_whatever_comes() {
        for limit in [10_000, 100_000, 1_000_000] {
            for (files, length) in [(3, 2_000_000), (200, 3_000), (1, 10)] {
                let mut archive = Archive::new(Vec::new(), "bundle", 1, limit);
                for number in 0..files {
                    let share = archive.left() / (files - number);
                    archive.add(&format!("{number}.txt"), &noise(length), share, Keep::End).unwrap();
                }
                let size = archive.finish().unwrap().len() as u64;
                assert!(size <= limit, "{size} of {limit} with {files} of {length}");
                // Estimates of tiny shares are poor.
                let fills = limit < 100_000 || files == 200 || length < 1000;
                assert!(fills || size > limit / 2, "{size} of {limit} is far too little");
            }
        }
    }

    #[test]
    fn cut_text_ends_at_a_line() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(cut(text, 10, Keep::End), "three\n");
        assert_eq!(cut(text, 10, Keep::Beginning), "one\ntwo\n");
        assert_eq!(cut("äää", 3, Keep::End), "ä");
        assert_eq!(cut("äää", 3, Keep::Beginning), "ä");
        assert_eq!(cut(text, 0, Keep::End), "");
    }
}
