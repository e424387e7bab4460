//! The contents of the initial root. Paths are those of the image. Libraries of programs are added automatically.

/// Programs, rules and libraries that are loaded by name at run time.
pub(super) const FILES: &[&str] = &[
    "usr/lib/systemd/systemd",
    "usr/lib/systemd/systemd-executor",
    "usr/lib/systemd/systemd-journald",
    "usr/lib/systemd/systemd-modules-load",
    "usr/lib/systemd/systemd-udevd",
    "usr/lib/systemd/systemd-veritysetup",
    "usr/lib/systemd/systemd-sysroot-fstab-check",
    "usr/lib/systemd/system-generators/systemd-fstab-generator",
    "usr/lib/systemd/system-generators/systemd-veritysetup-generator",
    "usr/bin/systemctl",
    "usr/bin/systemd-tmpfiles",
    "usr/bin/udevadm",
    "usr/bin/kmod",
    "usr/bin/mount",
    "usr/bin/umount",
    // The kernel runs it to load modules.
    "usr/sbin/modprobe",
    // dm-verity: libdevmapper waits until udev has seen the device.
    "usr/sbin/dmsetup",
    "usr/lib/udev/rules.d/50-udev-default.rules",
    "usr/lib/udev/rules.d/55-dm.rules",
    "usr/lib/udev/rules.d/60-block.rules",
    "usr/lib/udev/rules.d/60-persistent-storage-dm.rules",
    "usr/lib/udev/rules.d/60-persistent-storage.rules",
    "usr/lib/udev/rules.d/80-drivers.rules",
    "usr/lib/udev/rules.d/95-dm-notify.rules",
    "usr/lib/udev/rules.d/99-systemd.rules",
    "usr/lib/udev/ata_id",
    "usr/lib/udev/scsi_id",
    "usr/lib/tmpfiles.d/static-nodes-permissions.conf",
    // Libraries that systemd and kmod load on demand.
    "usr/lib/x86_64-linux-gnu/libblkid.so.1",
    "usr/lib/x86_64-linux-gnu/libcryptsetup.so.12",
    "usr/lib/x86_64-linux-gnu/libkmod.so.2",
    "usr/lib/x86_64-linux-gnu/liblzma.so.5",
    "usr/lib/x86_64-linux-gnu/libmount.so.1",
    "usr/lib/x86_64-linux-gnu/libzstd.so.1",
    // Users that rules and units name.
    "etc/group",
    "etc/passwd",
];

pub(super) const UNITS: &[&str] = &[
    "basic.target",
    "emergency.target",
    "final.target",
    "initrd-cleanup.service",
    "initrd-fs.target",
    "initrd-parse-etc.service",
    "initrd-root-device.target",
    "initrd-root-fs.target",
    "initrd-switch-root.service",
    "initrd-switch-root.target",
    "initrd-udevadm-cleanup-db.service",
    "initrd-usr-fs.target",
    "initrd.target",
    "kmod-static-nodes.service",
    "local-fs-pre.target",
    "local-fs.target",
    "modprobe@.service",
    "paths.target",
    "poweroff.target",
    "reboot.target",
    "shutdown.target",
    "sigpwr.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
    "systemd-journald.socket",
    "systemd-modules-load.service",
    "systemd-tmpfiles-setup-dev-early.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "timers.target",
    "umount.target",
    "veritysetup-pre.target",
    "veritysetup.target",
    // Our own early step, before the switch to the image's root.
    "kaas-early.service",
];

/// Units, with the directory of the target or unit that wants or requires them.
pub(super) const WANTED: &[(&str, &str)] = &[
    ("kmod-static-nodes.service", "sysinit.target.wants"),
    ("systemd-journald.service", "sysinit.target.wants"),
    ("systemd-modules-load.service", "sysinit.target.wants"),
    ("systemd-tmpfiles-setup-dev-early.service", "sysinit.target.wants"),
    ("systemd-tmpfiles-setup-dev.service", "sysinit.target.wants"),
    ("systemd-udev-trigger.service", "sysinit.target.wants"),
    ("systemd-udevd.service", "sysinit.target.wants"),
    ("systemd-journald-dev-log.socket", "sockets.target.wants"),
    ("systemd-journald.socket", "sockets.target.wants"),
    ("systemd-udevd-control.socket", "sockets.target.wants"),
    ("systemd-udevd-kernel.socket", "sockets.target.wants"),
    ("veritysetup.target", "sysinit.target.wants"),
    // The system must not start without it: a wrong identity is worse than none.
    ("kaas-early.service", "initrd.target.requires"),
];

pub(super) const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("init", "usr/lib/systemd/systemd"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
    ("var/run", "/run"),
];

/// Files that only the initial root has.
pub(super) const TEXTS: &[(&str, &str)] = &[
    // Marks an initial root for systemd (os-release(5)).
    ("etc/initrd-release", "ID=kaas\nNAME=\"KaaS initial root\"\nPRETTY_NAME=\"KaaS initial root\"\n"),
    // Modules that no device's alias loads.
    ("usr/lib/modules-load.d/root.conf", "dm_mod\ndm_verity\nerofs\noverlay\n"),
];

pub(super) const DIRECTORIES: &[&str] = &["dev", "proc", "run", "sys", "sysroot", "tmp"];
