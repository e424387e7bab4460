//! The root file system as on the disk: erofs, and the hash tree with which dm-verity checks each block.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::BuildContext;
use crate::cache::{Key, Stage, file_digest};
use crate::spec::Compression;
use crate::tree::Tree;

/// A fixed file system UUID: the root hash identifies an image.
const FILE_SYSTEM: &str = "6b616173-0000-4000-8000-000000000001";

#[derive(Clone, Debug)]
pub struct RootImage {
    pub erofs: PathBuf,
    pub verity: PathBuf,
    /// The root of the hash tree, in hexadecimal.
    pub hash: String,
    /// The messages of mkfs.erofs, with the sizes of compressed files.
    pub log: PathBuf,
}

/// Packs the tree, or finds the result in the cache.
pub fn pack(tree: &Tree, compression: &Compression, context: &BuildContext<'_>) -> Result<RootImage> {
    let &BuildContext { tools, cache, progress, epoch } = context;
    let key = tree.add_to_key(Key::of(Stage::ROOT), cache)?;
    let key = key.text("compression", format!("{compression:?}")).text("epoch", epoch.to_string());
    let key = key.key("tools", tools.key()).finish();
    let place = cache.stage(&key, progress, |directory| {
        let work = cache.work()?;
        let archive = work.path().join("root.tar");
        let file = BufWriter::with_capacity(1 << 20, File::create(&archive).context("writing the root's archive")?);
        progress.detail("archive");
        tree.write_tar(file, epoch).context("writing the root's archive")?;
        let run = |program: &str| tools.run(program).writes_at(directory, "/out").reads_at(work.path(), "/in").tool();
        let mut mkfs = run("mkfs.erofs").args(["-d3", "--tar=f"]).arg(format!("-T{epoch}"));
        mkfs = mkfs.arg(format!("-U{FILE_SYSTEM}")).args(["-x-1", "-L", "kaas-root"]);
        if let Compression::Erofs { compressor, cluster } = compression {
            // More threads than processors are not faster. Their number does not change the output.
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            mkfs = mkfs.arg(format!("-z{compressor}")).arg(format!("-C{cluster}")).arg(format!("--workers={workers}"));
        }
        let log = mkfs.args(["/out/root.erofs", "/in/root.tar"]).messages(progress)?;
        fs::write(directory.join("log"), log).context("writing the messages of mkfs.erofs")?;
        // The salt depends on the content only: equal images have equal hashes on every host.
        let salt = file_digest(&directory.join("root.erofs"))?;
        run("veritysetup")
            .arg("format")
            .arg(format!("--salt={salt}"))
            .arg(format!("--uuid={FILE_SYSTEM}"))
            .args(["--hash=sha256", "--data-block-size=4096", "--hash-block-size=4096"])
            .args(["--root-hash-file=/out/hash", "/out/root.erofs", "/out/root.verity"])
            .run(progress)
    })?;
    let hash = fs::read_to_string(place.join("hash")).context("reading the root hash")?;
    let hash = hash.trim().to_owned();
    if hash.len() != 64 {
        bail!("veritysetup gave the root hash {hash:?}");
    }
    let [erofs, verity, log] = ["root.erofs", "root.verity", "log"].map(|name| place.join(name));
    Ok(RootImage { erofs, verity, hash, log })
}
