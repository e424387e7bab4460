//! Rules for single values of a spec: each converts a string, or returns the reason why it is invalid.

use std::path::PathBuf;

use contract::role::{Role, UnknownRole};
use semver::{Version, VersionReq};

/// A file, relative to the spec.
pub(super) fn file(path: PathBuf) -> Result<PathBuf, String> {
    if path.is_file() { Ok(path) } else { Err(format!("there is no file {}", path.display())) }
}

/// A directory, relative to the spec.
pub(super) fn directory(path: PathBuf) -> Result<PathBuf, String> {
    if path.is_dir() { Ok(path) } else { Err(format!("there is no directory {}", path.display())) }
}

/// A file with certificates of CAs in PEM.
pub(super) fn authorities(path: PathBuf) -> Result<PathBuf, String> {
    let path = file(path)?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let begun = text.matches("-----BEGIN CERTIFICATE-----").count();
    if begun == 0 || text.matches("-----END CERTIFICATE-----").count() != begun || text.contains("PRIVATE KEY") {
        return Err(format!("{} is no list of certificates in PEM", path.display()));
    }
    Ok(path)
}

/// Names of images and profiles, which become file names and OVF identifiers.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.chars().all(fine) || text.starts_with('-') || text.len() > 40 {
        return Err(format!("`{text}` does not do: lower-case letters, digits and hyphens, at most 40"));
    }
    Ok(text.to_owned())
}

/// The image's version (Semantic Versioning), without build metadata: the build identifier is added to it.
pub(super) fn version(text: &str) -> Result<String, String> {
    match Version::parse(text) {
        Ok(version) if version.build.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is no version: give one such as 1.2.3 or 1.2.3-rc.1")),
    }
}

/// The versions from which the image can be an upgrade, as Cargo writes requirements.
pub(super) fn upgrades_from(text: &str) -> Result<VersionReq, String> {
    VersionReq::parse(text).map_err(|_| format!("`{text}` names no versions: give them such as >=0.1.0, <1.0.0"))
}

pub(super) fn one_of(text: &str, choices: &[&str]) -> Result<String, String> {
    if !choices.contains(&text) {
        return Err(none_of(text, choices));
    }
    Ok(text.to_owned())
}

pub(super) fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|UnknownRole| none_of(text, &Role::ALL.map(Role::name)))
}

fn none_of(text: &str, choices: &[&str]) -> String {
    format!("`{text}` is not one of {}", choices.join(", "))
}

/// A path in the image: absolute, without `.` or `..`.
pub(super) fn image_path(text: &str) -> Result<String, String> {
    let path = text.strip_prefix('/').filter(|path| !path.split('/').any(|part| ["", ".", ".."].contains(&part)));
    match path {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("`{text}` is no path in the image: begin with /, without . and ..")),
    }
}

/// One line of printable text.
pub(super) fn line(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("has to be one line of printable text".to_owned());
    }
    Ok(text.to_owned())
}

/// A kernel parameter: no blank outside quotes, and not one of the build's own.
pub(super) fn kernel_parameter(text: &str) -> Result<String, String> {
    let key = text.split('=').next().unwrap_or_default();
    if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("`{text}` is no single kernel parameter"));
    }
    if ["root", "roothash", "rootfstype", "init", "ro", "rw"].contains(&key) {
        return Err(format!("`{key}` is set by the build"));
    }
    Ok(text.to_owned())
}

/// A whole number of mebibytes or gibibytes, such as `512M` or `16G`, in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let unit = |number: &str, unit: u64| number.parse::<u64>().ok().filter(|&number| number > 0)?.checked_mul(unit);
    let size = match (text.strip_suffix('M'), text.strip_suffix('G')) {
        (Some(number), _) => unit(number, 1 << 20),
        (_, Some(number)) => unit(number, 1 << 30),
        _ => None,
    };
    size.ok_or_else(|| format!("`{text}` is no size: write a whole number and M or G, such as 16G"))
}

/// The size of a cluster of mkfs.erofs, such as `64K`, in bytes. Blocks have 4 KiB.
pub(super) fn cluster(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix('K').and_then(|number| number.parse().ok());
    let is_allowed = |size: &u64| (4..=1024).contains(size) && size.is_multiple_of(4);
    let size = size.filter(is_allowed).map(|size| size << 10);
    size.ok_or_else(|| format!("`{text}` is no size of a cluster: write 4K to 1024K, a multiple of 4K"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_whole_blocks_up_to_a_mebibyte() {
        assert_eq!((cluster("4K"), cluster("1024K")), (Ok(4 << 10), Ok(1 << 20)));
        for bad in ["", "64", "2K", "6K", "1028K", "1M"] {
            let message = format!("`{bad}` is no size of a cluster: write 4K to 1024K, a multiple of 4K");
            assert_eq!(cluster(bad), Err(message));
        }
    }

    #[test]
    fn sizes_are_whole_mebibytes_or_gibibytes() {
        assert_eq!(size("16G"), Ok(16 << 30));
        assert_eq!(size("96M"), Ok(96 << 20));
        for bad in ["", "G", "0G", "-1G", "16", "16GB", "1.5G", "99999999999999G"] {
            let message = format!("`{bad}` is no size: write a whole number and M or G, such as 16G");
            assert_eq!(size(bad), Err(message));
        }
    }
}
