use std::collections::BTreeMap;

use super::environment::{Adapter, Platform, Properties, UnconfiguredProperties, document};
use super::*;

fn property(key: &str, kind: &str, qualifiers: &str, default: Option<&str>) -> Property {
    Property {
        key: key.into(),
        kind: PropertyType::from_name(kind),
        qualifiers: Qualifier::parse_list(qualifiers),
        default: default.map(String::from),
        user_configurable: true,
        password: false,
        label: format!("The {key}"),
        description: "Says \"so\" & <more>.".into(),
    }
}

/// An appliance with everything the model can say.
pub(crate) fn appliance() -> Descriptor {
    let constant = Property { user_configurable: false, ..property("role", "string", "", Some("control-plane")) };
    let secret = Property { password: true, ..property("secret", "string", "MinLen(16)", None) };
    Descriptor {
        name: "example-appliance".into(),
        annotation: Some("An appliance\nof two lines".into()),
        eula: Some(Eula { licence: "Do what you like.".into() }),
        operating_system: OperatingSystem {
            cim_type: 96,
            vmware_type: Some("debian11_64Guest".into()),
            description: "Debian GNU/Linux (64-bit)".into(),
        },
        product: Product {
            class: None,
            instance: None,
            name: "Example Appliance".into(),
            vendor: "Example".into(),
            version: "0.1.0".into(),
            full_version: Some("0.1.0 (development image)".into()),
            url: Some("https://example.org/appliance".into()),
            groups: vec![
                PropertyGroup {
                    category: Some("Network".into()),
                    properties: vec![
                        property("address", "string", "Ip", None),
                        property("port", "uint16", "MinValue(1),MaxValue(65535)", Some("8472")),
                    ],
                },
                PropertyGroup {
                    category: Some("Access".into()),
                    properties: vec![
                        secret,
                        property("keys", "string", "", None),
                        property("verbose", "boolean", "", Some("False")),
                        property("minor", "string", "ValueMap{\"1.36\",\"1.35\"}", Some("1.36")),
                        constant,
                    ],
                },
            ],
        },
        disks: vec![
            Disk {
                id: "system".into(),
                capacity: 8 << 30,
                file: Some(DiskFile {
                    name: "system.vmdk".into(),
                    size: Some(419_430_400),
                    populated: Some(1_395_864_371),
                }),
            },
            Disk { id: "data-small".into(), capacity: 20 << 30, file: None },
            Disk { id: "data-large".into(), capacity: 100 << 30, file: None },
        ],
        networks: vec![Network { name: "Management".into(), description: "Where nodes meet".into() }],
        sizing: Sizing::Profiles(vec![
            Profile {
                id: "small".into(),
                label: "Small".into(),
                description: "To try".into(),
                default: true,
                size: Size { cpus: 2, memory_mib: 4096 },
            },
            Profile {
                id: "large".into(),
                label: "Large".into(),
                description: "To work".into(),
                default: false,
                size: Size { cpus: 8, memory_mib: 16384 },
            },
        ]),
        hardware: Hardware {
            version: 15,
            transports: vec![Transport::Iso, Transport::GuestInfo],
            disks: vec![
                HardDisk { disk: "system".into(), unit: 0, profiles: vec![] },
                HardDisk { disk: "data-small".into(), unit: 1, profiles: vec!["small".into()] },
                HardDisk { disk: "data-large".into(), unit: 1, profiles: vec!["large".into()] },
            ],
            adapters: vec![
                NetworkAdapter { network: "Management".into() },
                NetworkAdapter { network: "Management".into() },
            ],
            cd_rom: Some(CdRomController::Sata),
            firmware: Firmware::Efi { secure_boot: false },
            extra_config: vec![("disk.EnableUUID".into(), "TRUE".into())],
        },
    }
}

#[test]
fn the_descriptor_as_xml() {
    insta::assert_snapshot!(appliance().to_xml().unwrap());
}

#[test]
fn written_descriptors_are_read() {
    let mut variants = vec![appliance(); 3];
    variants[1].sizing = Sizing::Fixed(Size { cpus: 4, memory_mib: 8192 });
    variants[1].hardware.disks.truncate(2);
    variants[1].hardware.disks[1].profiles.clear();
    variants[1].disks.truncate(2);
    variants[1].hardware.cd_rom = Some(CdRomController::Ide);
    variants[1].hardware.firmware = Firmware::Bios;
    variants[2].annotation = None;
    variants[2].eula = None;
    variants[2].product.class = Some("com.example".into());
    variants[2].product.instance = Some("1".into());
    variants[2].hardware.firmware = Firmware::Efi { secure_boot: true };
    for descriptor in variants {
        let xml = descriptor.to_xml().unwrap();
        assert_eq!(Descriptor::parse(&xml).unwrap(), descriptor);
        assert_eq!(Descriptor::parse(&xml).unwrap().to_xml().unwrap(), xml);
    }
}

#[test]
fn prefixes_do_not_matter() {
    let xml = appliance().to_xml().unwrap();
    let other = xml
        .replace("rasd:", "r:")
        .replace("xmlns:rasd", "xmlns:r")
        .replace("vmw:", "v:")
        .replace("xmlns:vmw", "xmlns:v");
    assert_ne!(xml, other);
    assert_eq!(Descriptor::parse(&other).unwrap(), appliance());
}

/// A change to a good descriptor, and a part of the problems.
#[test]
fn each_mistake_is_named() {
    type Change = fn(&mut Descriptor);
    fn first(d: &mut Descriptor) -> &mut Property {
        &mut d.product.groups[0].properties[0]
    }
    let cases: &[(&str, Change)] = &[
        ("name \"a b\" must be made of", |d| d.name = "a b".into()),
        ("disk \"system\" has no capacity", |d| d.disks[0].capacity = 0),
        ("multiple of 1 KiB", |d| d.disks[0].capacity += 512),
        ("more data than capacity", |d| d.disks[0].capacity = 1 << 30),
        ("empty file", |d| d.disks[0].file.as_mut().unwrap().size = Some(0)),
        ("file without a size", |d| d.disks[0].file.as_mut().unwrap().size = None),
        ("has no good file", |d| d.disks[0].file.as_mut().unwrap().name = "a/b".into()),
        ("disk \"system\" occurs twice", |d| d.disks[1].id = "system".into()),
        ("hangs on no controller", |d| drop(d.hardware.disks.remove(2))),
        ("is attached, but not described", |d| drop(d.disks.remove(2))),
        ("use 0 to 15, but not 7", |d| d.hardware.disks[0].unit = 7),
        ("use 0 to 15, but not 7", |d| d.hardware.disks[0].unit = 16),
        ("has the same unit as disk \"system\"", |d| d.hardware.disks[0].unit = 1),
        ("profile \"huge\", which does not exist", |d| d.hardware.disks[1].profiles = vec!["huge".into()]),
        ("has 0 default profiles", |d| d.sizing = Sizing::Profiles(vec![])),
        ("has no processors", |d| d.sizing = Sizing::Fixed(Size { cpus: 0, memory_mib: 4 })),
        ("multiple of 4 MiB", |d| d.sizing = Sizing::Fixed(Size { cpus: 1, memory_mib: 5 })),
        ("hardware version 14 is too old", |d| d.hardware.version = 14),
        ("transport iso needs a CD-ROM", |d| d.hardware.cd_rom = None),
        ("no transport", |d| d.hardware.transports.clear()),
        ("network \"Management\" has an adapter, but is not listed", |d| d.networks.clear()),
        ("the product has no version", |d| d.product.version.clear()),
        ("has an empty class", |d| d.product.class = Some(String::new())),
        ("group 2 has no category", |d| d.product.groups[1].category = None),
        ("period, colon or space", |d| first(d).key = "guestinfo.address".into()),
        ("property \"port\" occurs twice", |d| first(d).key = "port".into()),
        ("has no label", |d| first(d).label.clear()),
        ("is a password, but not a string", |d| {
            first(d).password = true;
            first(d).kind = PropertyType::Boolean;
        }),
        ("which OVF does not define", |d| first(d).kind = PropertyType::Other("ip".into())),
        ("does not go with its type", |d| first(d).qualifiers = vec![Qualifier::MinValue(1.0)]),
        ("MinLen(0), which clients misread", |d| first(d).qualifiers = vec![Qualifier::MinLen(0)]),
        ("it must be an IPv4 or IPv6 address", |d| first(d).default = Some("here".into())),
        ("constant without a value", |d| first(d).user_configurable = false),
        ("U+0000", |d| first(d).description.push('\0')),
    ];
    for (expected, change) in cases {
        let mut descriptor = appliance();
        change(&mut descriptor);
        let error = descriptor.to_xml().expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

#[test]
fn all_mistakes_are_named_together() {
    let mut descriptor = appliance();
    descriptor.hardware.version = 10;
    descriptor.networks.clear();
    descriptor.product.name.clear();
    assert_eq!(descriptor.to_xml().unwrap_err().problems.len(), 4);
}

#[test]
fn descriptors_that_make_no_sense_are_refused() {
    let good = appliance().to_xml().unwrap();
    let cases = [
        ("not XML", String::new()),
        ("not XML", good[..good.len() / 2].into()),
        ("not XML", good.replace("<References>", "<!DOCTYPE x [<!ENTITY a \"b\">]><References>")),
        ("not XML", format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{}", &good[good.find("<Envelope").unwrap()..])),
        ("not an OVF 1 Envelope", good.replace("ovf/envelope/1", "ovf/envelope/2")),
        (
            "collection",
            good.replace("VirtualSystem ", "VirtualSystemCollection ")
                .replace("VirtualSystem>", "VirtualSystemCollection>"),
        ),
        ("no VirtualHardwareSection", good.replace("VirtualHardwareSection", "OtherSection")),
        ("no file \"file-system\"", good.replace("ovf:id=\"file-system\"", "ovf:id=\"x\"")),
        ("is not a capacity", good.replace("Units=\"byte\"", "Units=\"byte * 2^70\"")),
        ("is not a capacity", good.replace("Units=\"byte\"", "Units=\"metre\"")),
        ("is not a number", good.replace("8589934592", "-1")),
        ("is not a disk", good.replace("ovf:/disk/", "ovf:/file/")),
        ("neither true nor false", good.replace("userConfigurable=\"true\"", "userConfigurable=\"yes\"")),
        ("more than 1000 attributes", {
            let attributes: String = (0..200_000).map(|number| format!(" a{number}=\"\"")).collect();
            good.replace("<References>", &format!("<References{attributes}>"))
        }),
        ("more than 100 namespaces", {
            let nested: String = (0..5000).map(|number| format!("<a xmlns:p{number}=\"u{number}\">")).collect();
            good.replace("<References>", &format!("{nested}{}<References>", "</a>".repeat(5000)))
        }),
        ("more than 100 deployment options", {
            let option = "<Configuration ovf:id=\"x\"/>".repeat(100);
            good.replace("</DeploymentOptionSection>", &format!("{option}</DeploymentOptionSection>"))
        }),
        ("has no ovf:key", good.replace("ovf:key=", "key=")),
        ("no processors", good.replace("<rasd:ResourceType>3<", "<rasd:ResourceType>33<")),
    ];
    for (expected, xml) in cases {
        let error = Descriptor::parse(&xml).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

#[test]
fn references_are_the_files_of_the_package() {
    let good = appliance().to_xml().unwrap();
    let files = References::parse(&good).unwrap();
    let [file] = files.files() else { panic!("{files:?}") };
    assert_eq!(
        (file.name.as_str(), file.size, &file.compression, file.chunk_size),
        ("system.vmdk", Some(419_430_400), &None, None)
    );
    let [disk] = &file.disks[..] else { panic!("{file:?}") };
    assert_eq!((disk.capacity, disk.unit, disk.populated), (Some(8 << 30), 1, Some(1_395_864_371)));
    assert!(disk.format.ends_with("#streamOptimized"));

    let other = good.replace(" ovf:size=\"419430400\"", " ovf:compression=\"gzip\" ovf:chunkSize=\"1\"").replace(
        "</References>",
        "<File ovf:href=\"a.iso\" ovf:id=\"iso\" ovf:compression=\"identity\"/></References>",
    );
    let files = References::parse(&other).unwrap();
    let [file, iso] = files.files() else { panic!("{files:?}") };
    assert_eq!((file.size, file.compression.as_deref(), file.chunk_size), (None, Some("gzip"), Some(1)));
    assert_eq!((iso.name.as_str(), &iso.compression, iso.disks.len()), ("a.iso", &None, 0));
    assert_eq!(Descriptor::parse(&other).unwrap().disks[0].file.as_ref().unwrap().size, None);

    let cases = [
        ("no file \"file-system\"", good.replace("ovf:id=\"file-system\"", "ovf:id=\"x\"")),
        ("is not a number", good.replace("419430400", "many")),
        ("has no ovf:href", good.replace("ovf:href=", "ovf:unknown=")),
        ("more than 1000 files", {
            let files: String = (0..1000).map(|id| format!("<File ovf:href=\"{id}\" ovf:id=\"{id}\"/>")).collect();
            good.replace("</References>", &format!("{files}</References>"))
        }),
        ("more than 1000 disks", {
            good.replace("</DiskSection>", &format!("{}</DiskSection>", "<Disk/>".repeat(1000)))
        }),
    ];
    for (expected, xml) in cases {
        let error = References::parse(&xml).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

/// A descriptor of another vendor: with several products, a capacity by property, and devices of several `Item`s.
fn vendors() -> String {
    let item = |attributes: &str, id: &str, kind: u32, rest: &str| {
        format!(
            "<Item {attributes}>{rest}<rasd:InstanceID>{id}</rasd:InstanceID>\
             <rasd:ResourceType>{kind}</rasd:ResourceType></Item>"
        )
    };
    let quantity = |amount: u64| format!("<rasd:VirtualQuantity>{amount}</rasd:VirtualQuantity>");
    let mib = |amount| format!("<rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>{}", quantity(amount));
    let host = |disk: &str| format!("<rasd:HostResource>ovf:/disk/{disk}</rasd:HostResource>");
    let items = [
        item("", "1", 3, &quantity(2)),
        item("ovf:configuration=\"large\"", "1", 3, &quantity(8)),
        item("ovf:bound=\"min\"", "2", 4, &mib(512)),
        item("", "2", 4, &mib(1024)),
        item("ovf:bound=\"max\"", "2", 4, &mib(65536)),
        // The unit is in the Item before.
        item("ovf:configuration=\"large\"", "2", 4, &quantity(4096)),
        item("", "3", 17, &host("system")),
        item("ovf:configuration=\"large\"", "4", 17, &host("data")),
    ];
    let property = |key: &str, value: &str| format!("<Property ovf:key=\"{key}\" ovf:type=\"string\" {value}/>");
    format!(
        "<Envelope xmlns=\"http://schemas.dmtf.org/ovf/envelope/1\" xmlns:ovf=\"http://schemas.dmtf.org/ovf/envelope/1\" \
         xmlns:rasd=\"http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData\">\
         <References><File ovf:id=\"f\" ovf:href=\"disk%201.vmdk\"/></References>\
         <DiskSection><Disk ovf:diskId=\"system\" ovf:capacity=\"16\" ovf:capacityAllocationUnits=\"bit * 2^33\" \
         ovf:fileRef=\"f\" ovf:format=\"any\"/>\
         <Disk ovf:diskId=\"data\" ovf:capacity=\"${{disk.size}}\" ovf:capacityAllocationUnits=\"byte * 2^30\"/></DiskSection>\
         <DeploymentOptionSection><Configuration ovf:id=\"small\"/><Configuration ovf:id=\"large\"/></DeploymentOptionSection>\
         <VirtualSystem ovf:id=\"vm\">\
         <ProductSection><Product>First</Product>{}</ProductSection>\
         <ProductSection ovf:class=\"disk\">{}</ProductSection>\
         <ProductSection ovf:class=\"com.example\" ovf:instance=\"1\">{}</ProductSection>\
         <VirtualHardwareSection>{}</VirtualHardwareSection></VirtualSystem></Envelope>",
        property("name", ""),
        property("size", "ovf:value=\"40\""),
        property("key", ""),
        items.concat()
    )
}

#[test]
fn an_envelope_of_a_vendor_is_read_whole() {
    let envelope = Envelope::parse(&vendors()).unwrap();
    let keys =
        envelope.products.iter().flat_map(|product| product.properties().map(|own| product.environment_key(own)));
    assert_eq!(keys.collect::<Vec<_>>(), ["name", "disk.size", "com.example.key.1"]);
    let capacities = envelope.disks.iter().map(|disk| (disk.capacity, disk.capacity_property.as_deref()));
    assert_eq!(capacities.collect::<Vec<_>>(), [(Some(16 << 30), None), (Some(40 << 30), Some("disk.size"))]);
    let variants = envelope.variants.iter().map(|variant| {
        (variant.id.as_deref().unwrap(), variant.default, variant.cpus, variant.memory_mib, variant.disks.concat())
    });
    let expected = [
        ("small", true, Some(2), Some(1024), "system".to_owned()),
        ("large", false, Some(8), Some(4096), "systemdata".to_owned()),
    ];
    assert_eq!(variants.collect::<Vec<_>>(), expected);

    // Without processors, a default, recommended values or options.
    let other = vendors()
        .replace("<rasd:ResourceType>3<", "<rasd:ResourceType>33<")
        .replace("ovf:value=", "ovf:unknown=")
        .replace("<Configuration", "<Other")
        .replace("<Item ><rasd:AllocationUnits>", "<Item ovf:bound=\"max\"><rasd:AllocationUnits>");
    let envelope = Envelope::parse(&other).unwrap();
    assert_eq!((envelope.disks[1].capacity, envelope.disks[1].capacity_property.as_deref()), (None, Some("disk.size")));
    let [Variant { id: None, default: true, cpus: None, memory_mib: Some(512), .. }] = &envelope.variants[..] else {
        panic!("{:?}", envelope.variants)
    };

    for default in ["40GB", "", "18446744073709551615"] {
        let other = vendors().replace("ovf:value=\"40\"", &format!("ovf:value=\"{default}\""));
        assert_eq!(Envelope::parse(&other).unwrap().disks[1].capacity, None, "{default:?}");
    }

    // The product's own OVAs have none of these.
    Descriptor::parse(&vendors()).unwrap_err();
}

#[test]
fn envelopes_that_make_no_sense_are_refused() {
    let good = vendors();
    let cases = [
        ("ovf:bound is \"low\"", good.replace("ovf:bound=\"min\"", "ovf:bound=\"low\"")),
        ("\"many\" is not a number", good.replace("ovf:capacity=\"16\"", "ovf:capacity=\"many\"")),
        ("times \"metre\" is not a capacity", good.replace("bit * 2^33", "metre")),
        ("is not an amount of memory", good.replace("byte * 2^20", "hertz")),
        ("ovf:chunkSize is 0", good.replace("ovf:href=", "ovf:chunkSize=\"0\" ovf:href=")),
        (
            "\"data\" is a difference to the disk \"base\"",
            good.replace("\"data\" ovf:cap", "\"data\" ovf:parentRef=\"base\" ovf:cap"),
        ),
        (
            "of the draft OVF 0.9",
            good.replace("http://schemas.dmtf.org/ovf/envelope/1", "http://www.vmware.com/schema/ovf/1/envelope"),
        ),
        ("of OVF 2,", good.replace("ovf/envelope/1", "ovf/envelope/2")),
        (
            "more than 2000 Items",
            good.replace("</Item></Virtual", &format!("</Item>{}</Virtual", "<Item/>".repeat(1993))),
        ),
        (
            "two files at \"disk%201.vmdk\"",
            good.replace("</References>", "<File ovf:id=\"g\" ovf:href=\"disk%201.vmdk\"/></References>"),
        ),
        // Texts that are copied for each property, disk or deployment option.
        (
            "ovf:class has more than 256 bytes",
            good.replace("ovf:class=\"disk", &format!("ovf:class=\"{}", "x".repeat(257))),
        ),
        (
            "ovf:instance has more than 256 bytes",
            good.replace("instance=\"1", &format!("instance=\"{}", "x".repeat(257))),
        ),
        ("ovf:href has more than 1000 bytes", good.replace("disk%201", &"x".repeat(1000))),
        ("HostResource has more than 256 bytes", good.replace("/disk/data", &format!("/disk/{}", "x".repeat(250)))),
    ];
    for (expected, xml) in cases {
        let error = Envelope::parse(&xml).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
    let error = Descriptor::parse(
        &appliance().to_xml().unwrap().replace("</ProductSection>", "</ProductSection><ProductSection/>"),
    );
    assert!(error.unwrap_err().to_string().contains("several ProductSections"));
}

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[test]
fn the_environment_as_vcenter_makes_it() {
    let options = options(&[("address", "10.0.0.5"), ("secret", "0123456789<&\"'\t$%"), ("verbose", "true")]);
    let adapters = [
        Adapter { mac: "00:50:56:00:00:01".into(), network: "VLAN 12".into() },
        Adapter { mac: "00:50:56:00:00:02".into(), network: "VLAN 13".into() },
    ];
    let platform = Platform::vsphere("8.0.3", "vm-42");
    let properties = Properties::import(&appliance().product, &options).unwrap();
    insta::assert_snapshot!(document(&properties, &platform, &adapters).unwrap());
}

#[test]
fn class_and_instance_are_part_of_the_keys() {
    let mut product = appliance().product;
    product.class = Some("com.example".into());
    product.instance = Some("1".into());
    product.groups.truncate(1);
    let Properties { values, .. } =
        Properties::import(&product, &options(&[("com.example.address.1", "10.0.0.5")])).unwrap();
    let expected = [("com.example.address.1", "10.0.0.5"), ("com.example.port.1", "8472")];
    assert_eq!(values, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    // An empty class is the same as no class.
    product.class = Some(String::new());
    product.instance = None;
    assert_eq!(product.environment_key(&property("p", "string", "", None)), "p");
}

#[test]
fn vcenters_refusals_come_all_at_once() {
    let options = options(&[
        ("adress", "10.0.0.5"),
        ("port", "0"),
        ("secret", "hunter2"),
        ("verbose", "maybe"),
        ("minor", "1.30"),
        ("role", "worker"),
    ]);
    let error = Properties::import(&appliance().product, &options).unwrap_err();
    insta::assert_snapshot!(error.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    assert!(!error.to_string().contains("hunter2"));
}

#[test]
fn an_untouched_form_blocks_the_power_on() {
    let untouched = Properties::import(&appliance().product, &BTreeMap::new()).unwrap();
    // Tools hand in each property, also those without a value.
    let empty = options(&[("address", ""), ("port", ""), ("secret", ""), ("keys", ""), ("verbose", ""), ("minor", "")]);
    assert_eq!(Properties::import(&appliance().product, &empty).unwrap(), untouched);
    let value = |key: &str| untouched.values.iter().find(|(known, _)| known == key).unwrap().1.as_str();
    assert_eq!(["address", "port", "keys", "verbose", "minor"].map(value), ["", "8472", "", "False", "1.36"]);
    let refused = UnconfiguredProperties { labels: untouched.unconfigured };
    assert_eq!(
        refused.to_string(),
        "property 'The address', property 'The secret' must be configured for the VM to power on"
    );
    let product = Product {
        groups: vec![PropertyGroup { category: None, properties: vec![property("number", "uint8", "", None)] }],
        ..appliance().product
    };
    assert_eq!(Properties::import(&product, &BTreeMap::new()).unwrap().unconfigured, ["The number"]);
}

proptest::proptest! {
    #[test]
    fn damaged_descriptors_do_no_harm(at in proptest::prelude::any::<proptest::sample::Index>(), length in 0usize..40, with in ".{0,8}") {
        thread_local!(static GOOD: Vec<char> = appliance().to_xml().unwrap().chars().collect());
        let text: String = GOOD.with(|good| {
            let at = at.index(good.len());
            let end = (at + length).min(good.len());
            good[..at].iter().copied().chain(with.chars()).chain(good[end..].iter().copied()).collect()
        });
        let _ = (Descriptor::parse(&text), Envelope::parse(&text));
    }
}
