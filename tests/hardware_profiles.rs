//! The device profiles of `hardware-profiles/`: all of them read, and the traps of data sheets avoided.

use llm_roofline::format::NumberFormat::{self, Bf16, Fp4, Fp6, Fp8, Fp16, Fp32, Int4, Int8, Tf32};
use llm_roofline::hardware::{Device, DeviceError, LinkKind, System, SystemError};
use llm_roofline::profile::Provenance;
use llm_roofline::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hardware-profiles")
}

fn text(slug: &str) -> String {
    fs::read_to_string(folder().join(format!("{slug}.toml"))).unwrap()
}

fn device(slug: &str) -> Device {
    Device::from_toml(&text(slug), slug).unwrap()
}

fn all() -> Vec<(String, Device)> {
    let mut devices: Vec<(String, Device)> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap().to_string();
            let device = Device::from_toml(&fs::read_to_string(&path).unwrap(), &file);
            (file, device.unwrap_or_else(|error| panic!("{error}")))
        })
        .collect();
    devices.sort_by(|a, b| a.0.cmp(&b.0));
    devices
}

#[test]
fn every_file_reads_under_its_slug_and_none_is_missing() {
    let mut families: BTreeMap<String, usize> = BTreeMap::new();
    for (file, device) in all() {
        assert_eq!(file, format!("{}.toml", device.slug()));
        *families.entry(device.family().to_string()).or_default() += 1;
    }
    let counts: Vec<(&str, usize)> = families.iter().map(|(family, count)| (family.as_str(), *count)).collect();
    let expected = [
        ("amd", 22),
        ("apple", 32),
        ("cpu", 11),
        ("cpu-mesh", 5),
        ("cpu-server", 8),
        ("geforce", 22),
        ("intel", 6),
        ("nvidia-datacenter", 34),
        ("nvidia-soc", 6),
        ("nvidia-workstation", 13),
        ("other-asic", 11),
    ];
    assert_eq!(counts, expected);
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 170);
}

#[test]
fn no_two_devices_share_a_name() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for (_, device) in all() {
        let aliases = device.profile().aliases.iter().map(String::as_str);
        for name in aliases.chain([device.slug(), device.name()]) {
            // As the catalog compares them.
            let plain: String = name.to_lowercase().chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect();
            let other = owners.entry(plain).or_insert_with(|| device.slug().to_string());
            assert_eq!(other, device.slug(), "{name} means both");
        }
    }
}

#[test]
fn every_device_is_whole() {
    for (file, device) in all() {
        for format in NumberFormat::ALL {
            let ridge = device.ridge(format).as_flops_per_byte();
            assert!(ridge.is_finite() && ridge > 0.0, "{file}: ridge in {format} is {ridge}");
        }
        let share = device.usable_memory() / device.capacity();
        let expected = if device.has_unified_memory() { 0.7..1.08 } else { 0.94..1.09 };
        assert!(expected.contains(&share), "{file}: {share} of the capacity");
        assert_eq!(Device::from_toml(&device.to_toml(), "again").unwrap(), device, "{file}");
        let assumed = device.facts().iter().filter(|fact| fact.kind == Provenance::Assumed).count();
        assert_eq!(device.assumptions().len(), assumed, "{file}");
        for price in device.prices() {
            assert!((0.1..20.0).contains(&price.usd_per_hour.as_usd_per_hour()), "{file}: {}", price.usd_per_hour);
        }
    }
}

/// Cards hold binary gigabytes, of which driver and error correction take up to 9 %.
#[test]
fn every_accelerator_says_what_programs_see() {
    let spared = ["cerebras-wse-3", "groq-lpu-v1"]; // no driver's figure: memory on the chip
    let accelerators = all().into_iter().filter(|(_, device)| device.generation() != "cpu");
    for (file, device) in accelerators.filter(|(_, device)| !spared.contains(&device.slug())) {
        let memory = &device.profile().memory;
        let usable = memory.usable.as_ref().unwrap_or_else(|| panic!("{file}: usable memory is missing"));
        if !memory.unified {
            let (gb, gib) = (device.capacity().as_gb(), device.capacity().as_gib());
            let share = usable.value.as_gib() / if gib.fract() == 0.0 { gib } else { gb };
            assert!((0.88..=1.015).contains(&share), "{file}: {share} of the binary gigabytes");
        }
        let discrete = !memory.unified && device.family() != "other-asic";
        assert!(device.host_link().is_some() || !discrete, "{file}: no link to the host");
        assert!(device.host_link().is_none() || !memory.unified, "{file}: a link to its own memory");
    }
    assert_eq!(device("gh200-96gb").host_link().unwrap().bandwidth.value, BytesPerSecond::from_gb_per_second(450.0));
}

/// `total_memory` of PyTorch, VRAM of llama.cpp and what their users report, in GiB.
#[test]
fn published_visible_memory() {
    let rows = [
        ("rtx-4080-16gb", 15.70),     // ollama/ollama#9245: 16076 MiB
        ("rtx-5060-ti-16gb", 15.45),  // Luce-Org/lucebox#407: 15816 MiB
        ("rtx-5090-32gb", 31.36),     // TrajectoryCrafter/TrajectoryCrafter#20
        ("rtx-a4000-16gb", 15.61),    // DengKaiCQ/VGGT-Long#6
        ("rtx-pro-6000-96gb", 94.97), // antirez/ds4#431
        ("a10g-24gb", 21.98),         // vllm-project/vllm#9367
        ("t4-16gb", 14.56),           // Zheng-Chong/CatVTON#133
        ("l40s-48gb", 44.42),         // vllm-project/vllm#15815
        ("h100-sxm-80gb", 79.11),     // vllm-project/vllm#27508
        ("b200-sxm-180gb", 178.35),   // unslothai/unsloth#3411
        ("rx-7900-xtx-24gb", 23.98),  // ilya-zlobintsev/LACT#533: 24560 MiB
        ("arc-a770-16gb", 15.11),     // ggml-org/llama.cpp#6036: 16225243136 bytes
        ("tpu-v4", 30.75),            // erfanzar/EasyDeL#166
        ("tpu-v6e", 31.25),           // vllm-project/vllm#16211: 33550237696 bytes
        ("dgx-spark", 121.69),        // MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47
        ("strix-halo-128gb", 120.0),  // ROCm/legacy-rocm-build#5595: 122880M of GTT where so configured
        ("m4-max-40c", 107.52),       // antirez/ds4#893
    ];
    for (slug, gib) in rows {
        let found = device(slug).usable_memory().as_gib();
        assert!((found - gib).abs() < 0.006, "{slug}: {found} GiB, expected {gib}");
    }
}

/// `recommendedMaxWorkingSetSize` as llama.cpp and MLX print it, in decimal megabytes, by the gigabytes of the Mac.
#[test]
fn macs_with_other_memory_follow_the_rule_of_macos() {
    let rows = [
        (8.0, 5726.63),     // Apple M1, 5461 MiB
        (16.0, 12713.12),   // Apple M1, M2 and M4; AlexsJones/llmfit#754: 11.84 GiB
        (24.0, 19069.67),   // Apple M4
        (32.0, 26800.60),   // Apple M1 Max, M4 and M5
        (36.0, 30150.67),   // Apple M3 Max
        (48.0, 40200.90),   // Apple M5 Max, ggml-org/llama.cpp#16634
        (64.0, 55662.79),   // Apple M1 Max, M3 Max and M4 Pro
        (128.0, 115448.73), // Apple M4 Max and M5 Max; antirez/ds4#893: 107.52 GiB
        (192.0, 173173.08), // Apple M2 Ultra, 173173080064 bytes
        (256.0, 223338.30), // Apple M3 Ultra, 223338299392 bytes
        (512.0, 498216.21), // Apple M3 Ultra
    ];
    for (_, mac) in all().into_iter().filter(|(_, device)| device.family() == "apple") {
        for (gigabytes, megabytes) in rows {
            for capacity in [Bytes::from_gb(gigabytes), Bytes::from_gib(gigabytes)] {
                let other = mac.clone().with_memory_capacity(capacity).unwrap();
                assert_eq!(other.capacity(), capacity);
                let found = other.usable_memory().as_gb() * 1000.0;
                assert!((found / megabytes - 1.0).abs() < 1e-4, "{gigabytes} GB: {found} MB, expected {megabytes}");
            }
        }
        let same = mac.clone().with_memory_capacity(mac.capacity()).unwrap();
        let change = same.usable_memory() / mac.usable_memory();
        assert!((change - 1.0).abs() < 1e-3, "{}: {change}", mac.slug());
    }
}

#[test]
fn other_devices_keep_their_share_of_the_memory() {
    // RTX 4090 cards rebuilt with 48 GB: twice 23.64 GiB.
    let rebuilt = device("rtx-4090-24gb").with_memory_capacity(Bytes::from_gb(48.0)).unwrap();
    assert!((rebuilt.usable_memory().as_gib() - 47.28).abs() < 1e-9, "{}", rebuilt.usable_memory().as_gib());
    assert_eq!(rebuilt.bandwidth(), device("rtx-4090-24gb").bandwidth());
    assert!(
        rebuilt.assumptions().iter().any(|line| line.contains("98.5 % of 48.00 GiB")),
        "{:?}",
        rebuilt.assumptions()
    );
    assert_eq!(Device::from_toml(&rebuilt.to_toml(), "again").unwrap(), rebuilt);
    // Unknown usable memory stays unknown.
    let host = device("ryzen-9-5950x").with_memory_capacity(Bytes::from_gib(64.0)).unwrap();
    assert_eq!(host.usable_memory(), Bytes::from_gib(64.0));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        let error = device("rtx-4090-24gb").with_memory_capacity(Bytes::from_gb(bad)).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfRange { .. }), "{bad}: {error}");
    }
}

#[test]
fn shares_of_memory_are_checked() {
    let mac = text("m1-8c");
    for (from, to) in [("share = 0.74", "share = 1.74"), ("share = 0.74", "share = 0.0"), ("\"16 GiB\"", "\"8 GiB\"")] {
        let error = Device::from_toml(&mac.replacen(from, to, 1), "m1.toml").unwrap_err().to_string();
        assert!(error.contains("`memory.usable_shares`: share") && error.contains("at most 1"), "{error}");
    }
}

/// Dense peaks in TFLOP/s, memory in GB and GB/s, from vendor sheets and the dense table of stas00/ml-engineering,
/// compute/accelerator/README.md. Sheets with sparsity, per die, or for both link directions print other numbers.
#[test]
fn published_figures() {
    let rows: [(&str, f64, f64, NumberFormat, f64); 21] = [
        ("h100-sxm-80gb", 80.0, 3350.0, Bf16, 989.4), // 1979 with sparsity
        ("h100-sxm-80gb", 80.0, 3350.0, Fp8, 1979.0), // 3958 with sparsity
        ("h200-sxm-141gb", 141.0, 4800.0, Bf16, 989.4),
        ("b200-sxm-180gb", 180.0, 8000.0, Bf16, 2250.0), // databases list one die: 90 GB, 4100 GB/s
        ("b200-sxm-180gb", 180.0, 8000.0, Fp4, 9000.0),
        ("gb200-186gb", 186.0, 8000.0, Bf16, 2500.0),
        ("b300-sxm-270gb", 270.0, 8000.0, Bf16, 2250.0),
        ("b300-sxm-270gb", 270.0, 8000.0, Int8, 153.5), // cut, not 4500 as on B200
        ("a100-sxm-80gb", 80.0, 2039.0, Bf16, 312.0),
        ("a100-sxm-40gb", 40.0, 1555.0, Int8, 624.0),
        ("l40s-48gb", 48.0, 864.0, Bf16, 362.0),
        ("l4-24gb", 24.0, 300.0, Fp16, 121.0), // 242 with sparsity
        ("t4-16gb", 16.0, 320.0, Fp16, 65.0),
        ("rtx-4090-24gb", 24.0, 1008.0, Fp16, 165.2), // 330.3 with 16-bit accumulation
        ("rtx-4090-24gb", 24.0, 1008.0, Fp8, 330.3),  // 660.6 with 16-bit accumulation
        ("rtx-5090-32gb", 32.0, 1792.0, Fp8, 419.0),
        ("rtx-3090-24gb", 24.0, 936.0, Bf16, 71.0),
        ("mi300x-192gb", 192.0, 5300.0, Bf16, 1307.4), // databases list 10300 GB/s
        ("mi300x-192gb", 192.0, 5300.0, Fp8, 2614.9),
        ("tpu-v5e", 16.0, 819.0, Bf16, 197.0),
        ("gaudi3-128gb", 128.0, 3700.0, Bf16, 1677.0), // 1835 at a clock that no part runs at
    ];
    for (slug, gigabytes, gigabytes_per_second, format, tflops) in rows {
        let device = device(slug);
        assert_eq!(device.capacity(), Bytes::from_gb(gigabytes), "{slug}");
        assert_eq!(device.bandwidth(), BytesPerSecond::from_gb_per_second(gigabytes_per_second), "{slug}");
        let peak = device.peak(format).unwrap().as_tflops_per_second();
        assert!((peak - tflops).abs() < 0.06, "{slug}: {peak} TFLOP/s in {format}, expected {tflops}");
    }
}

#[test]
fn accumulation_in_16_bits_is_kept_apart() {
    let rtx_4090 = device("rtx-4090-24gb");
    let faster = rtx_4090.profile().compute.fp16_fp16_accumulate.as_ref().unwrap().value;
    assert_eq!(faster.as_tflops_per_second(), 330.3); // NVIDIA Ada whitepaper
    assert!(device("h100-sxm-80gb").profile().compute.fp16_fp16_accumulate.is_none());
}

#[test]
fn sources_that_were_not_read_are_assumptions() {
    let assumptions = device("h100-nvl-94gb").assumptions();
    assert!(assumptions.iter().any(|line| line.contains(": compute.fp16 = 83")), "{assumptions:?}");
    assert!(device("h100-sxm-80gb").assumptions().is_empty());
}

/// Matrix rates of FP16 with 32-bit accumulation as multiples of FP32, which counts every lane that can issue in a cycle: NVIDIA whitepapers
/// of Turing, GA102, Ada and RTX Blackwell (half rate on GeForce); AMD lab notes and GPUOpen (operations per clock and CU).
#[test]
fn matrix_rates_follow_the_architecture() {
    let rows: [(&str, &str, f64); 14] = [
        ("turing", "geforce", 4.0),
        ("turing", "nvidia-workstation", 8.0),
        ("ampere", "geforce", 2.0),
        ("ampere", "nvidia-workstation", 4.0),
        ("ada", "geforce", 2.0),
        ("ada", "nvidia-workstation", 4.0),
        ("blackwell", "geforce", 2.0),
        ("blackwell", "nvidia-workstation", 4.0),
        ("rdna3", "amd", 2.0),
        ("rdna4", "amd", 4.0),
        ("cdna1", "amd", 8.0),
        ("cdna2", "amd", 8.0),
        ("cdna3", "amd", 16.0),
        ("cdna4", "amd", 32.0),
    ];
    let devices = all();
    for (generation, family, ratio) in rows {
        let same = |device: &Device| device.generation() == generation && device.family() == family;
        assert!(devices.iter().any(|(_, device)| same(device)), "no {generation} of {family}");
        for (file, device) in devices.iter().filter(|(_, device)| same(device)) {
            let rate = |format| device.peak(format).unwrap().as_tflops_per_second();
            let found = rate(Fp16) / rate(Fp32);
            assert!((found / ratio - 1.0).abs() < 0.03, "{file}: {found}, expected {ratio}");
            if family == "geforce" {
                let faster = device.fp16_accumulate_peak().unwrap().as_tflops_per_second();
                assert!((faster / rate(Fp16) - 2.0).abs() < 0.01, "{file}: {faster} TFLOP/s with 16-bit accumulation");
            }
        }
    }
}

/// Laws of kernels are looked up by generation and memory technology.
#[test]
fn memory_technology_is_recognized() {
    for (file, device) in all().into_iter().filter(|(_, device)| device.family() != "other-asic") {
        let keys = device.kernel_keys();
        assert!(!keys[1].ends_with("-memory"), "{file}: {} of `{}`", keys[1], device.profile().memory.kind);
    }
    assert_eq!(device("a100-sxm-80gb").kernel_keys()[1], "ampere-hbm");
    assert_eq!(device("rtx-3090-24gb").kernel_keys()[0], "ampere-geforce");
    assert_eq!(device("rtx-3090-24gb").kernel_keys()[1], "ampere-gddr");
    assert_eq!(device("epyc-9654").kernel_keys()[1], "cpu-ddr");
}

/// Volta and Turing have no bfloat16, Ampere no FP8, Hopper no FP4 (NVIDIA architecture whitepapers).
#[test]
fn missing_formats_fall_back() {
    let format = |slug, weights, activations| device(slug).matmul_peak(weights, activations).format;
    assert_eq!(format("a100-sxm-80gb", Fp8, Fp8), Bf16);
    assert_eq!(format("a100-sxm-80gb", Int8, Int8), Int8);
    assert_eq!(format("t4-16gb", Bf16, Bf16), Fp16);
    assert_eq!(format("v100-sxm2-32gb", Bf16, Bf16), Fp16);
    assert_eq!(format("p40-24gb", Fp16, Fp16), Fp32);
    assert_eq!(format("core-i9-14900k", Bf16, Bf16), Fp32);
    assert_eq!(format("m1-max-32c", Bf16, Bf16), Fp16);
    assert_eq!(format("tpu-v6e", Fp8, Fp8), Bf16);
    assert_eq!(format("h100-sxm-80gb", Fp4, Fp8), Fp8);
    assert_eq!(format("h100-sxm-80gb", Fp4, Fp4), Bf16); // vLLM: weight-only Marlin kernels
    assert_eq!(format("h100-sxm-80gb", Fp4, Bf16), Bf16);
    assert_eq!(format("h100-sxm-80gb", Int4, Fp16), Fp16);
    assert_eq!(format("b200-sxm-180gb", Fp4, Fp4), Fp4);
    assert_eq!(format("b200-sxm-180gb", Fp6, Fp8), Fp8);
    assert_eq!(format("a100-sxm-80gb", Int4, Int4), Int4);
    assert_eq!(format("a100-sxm-80gb", Tf32, Tf32), Tf32);
    assert!(device("a100-sxm-80gb").matmul_peak(Fp8, Fp8).fallback);
    assert!(!device("a100-sxm-80gb").matmul_peak(Int4, Bf16).fallback);
}

fn link(slug: &str, count: u32, group: u32) -> (LinkKind, f64) {
    let link = System::new(device(slug), count).unwrap().group_link(group).unwrap();
    (link.kind, link.bandwidth.as_gb_per_second())
}

/// Per direction, where sheets add both (stas00/ml-engineering, network/README.md: NVLink 4 450 GB/s, MI300X 7 x 64 GB/s).
#[test]
fn groups_get_the_link_that_limits_them() {
    assert_eq!(link("h100-sxm-80gb", 16, 8), (LinkKind::Nvlink, 450.0));
    assert_eq!(link("h100-sxm-80gb", 16, 16), (LinkKind::Network, 50.0));
    assert_eq!(link("gb200-186gb", 72, 72), (LinkKind::Nvlink, 900.0));
    assert_eq!(link("mi300x-192gb", 8, 8), (LinkKind::InfinityFabric, 448.0));
    assert_eq!(link("mi300x-192gb", 8, 2), (LinkKind::InfinityFabric, 64.0));
    assert_eq!(link("rtx-4090-24gb", 2, 2), (LinkKind::Pcie, 31.504));
    assert_eq!(link("rtx-3090-24gb", 4, 2), (LinkKind::NvlinkBridge, 56.25));
    assert_eq!(link("rtx-3090-24gb", 4, 4), (LinkKind::Pcie, 31.504));
    assert_eq!(link("dgx-spark", 2, 2), (LinkKind::Network, 25.0)); // its own ConnectX-7
    assert_eq!(link("tpu-v5e", 16, 16), (LinkKind::Ici, 200.0));
}

#[test]
fn systems_can_be_described_and_refuse_the_impossible() {
    let h100 = || System::new(device("h100-sxm-80gb"), 16).unwrap();
    let bandwidth = BytesPerSecond::from_gb_per_second(25.0);
    let slower = h100().with_scale_out(bandwidth).unwrap().group_link(16).unwrap();
    assert_eq!(slower.bandwidth, bandwidth);
    assert_eq!(h100().with_devices_per_node(4).unwrap().group_link(8).unwrap().kind, LinkKind::Network);
    assert_eq!(h100().nodes(), 2);
    assert_eq!(h100().group_link(1).unwrap().kind, LinkKind::Nvlink);

    let count = |result: Result<System, SystemError>| result.unwrap_err().to_string();
    assert_eq!(count(System::new(device("h100-sxm-80gb"), 0)), "count is 0 devices, expected 1 to 1048576");
    assert_eq!(h100().group_link(17).unwrap_err().to_string(), "group_size is 17 devices, expected 1 to 16");
    assert!(h100().group_link(0).is_err());
    assert!(h100().with_devices_per_node(0).is_err());
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(h100().with_scale_out(BytesPerSecond::from_gb_per_second(bad)).is_err());
    }
}

/// The error of a good profile with one text replaced.
fn broken(from: &str, to: &str) -> String {
    let good = text("h100-sxm-80gb");
    assert!(good.contains(from), "the profile has no {from}");
    Device::from_toml(&good.replacen(from, to, 1), "h100.toml").unwrap_err().to_string()
}

fn line_of(start: &str) -> usize {
    text("h100-sxm-80gb").lines().position(|line| line.starts_with(start)).unwrap() + 1
}

#[test]
fn errors_say_file_line_key_and_remedy() {
    let at = |start| format!("h100.toml, line {}: ", line_of(start));
    let unknown = broken("tf32 = ", "tf23 = ");
    assert!(unknown.starts_with(&format!("{}unknown field `tf23`", at("tf32"))), "{unknown}");
    assert!(unknown.ends_with("(did you mean `tf32`?)"), "{unknown}");
    let missing = broken("bandwidth = { value = \"3.35 TB/s\"", "# { value = \"3.35 TB/s\"");
    assert!(missing.contains("missing field `bandwidth`"), "{missing}");
    let unit = broken("\"3.35 TB/s\"", "\"3.35 Tb/s\"");
    assert!(unit.starts_with(&at("bandwidth")) && unit.contains("unknown unit \"Tb/s\""), "{unit}");
    for number in ["nan TB/s", "-3.35 TB/s", "inf TB/s"] {
        let range = broken("\"3.35 TB/s\"", &format!("\"{number}\""));
        assert!(range.starts_with(&at("bandwidth")) && range.contains("must be a finite number"), "{range}");
    }
    let zero = broken("\"3.35 TB/s\"", "\"0 TB/s\"");
    let expected = "key `memory.bandwidth`: 0.00 B/s is out of range, expected more than 0 and at most 20000 PB/s";
    assert_eq!(zero, format!("{}{expected}", at("bandwidth")));
    let huge = broken("\"80 GB\"", "\"80e9 GB\"");
    assert!(huge.starts_with(&format!("{}key `memory.capacity`: ", at("capacity"))), "{huge}");
    let source = broken("source = \"vllm_27508\"", "source = \"vllm_2750\"");
    assert!(source.starts_with(&at("usable")) && source.ends_with("(did you mean `vllm_27508`?)"), "{source}");
    let domain = broken("domain = 8", "domain = 0");
    assert_eq!(domain, format!("{}key `links.scale_up.domain`: 0 devices, expected 1 to 1048576", at("domain")));
    let kind = broken("kind = \"nvlink\"", "kind = \"nvlnk\"");
    assert!(kind.ends_with("(did you mean `nvlink`?)"), "{kind}");
    let version = broken("schema_version = 1", "schema_version = 2");
    assert_eq!(version, "h100.toml, line 1: key `schema_version`: is 2, this version reads 1");
    let slug = broken("slug = \"h100-sxm-80gb\"", "slug = \"H100 SXM\"");
    assert!(slug.starts_with("h100.toml, line 2: key `slug`: `H100 SXM` has characters other"), "{slug}");
    // The line of a key that occurs in several tables is that of its own table.
    let link = broken("bandwidth = { value = \"450 GB/s\"", "bandwidth = { value = \"0 GB/s\"");
    assert!(link.starts_with(&at("bandwidth = { value = \"450 GB/s\"")), "{link}");
}

#[test]
fn devices_of_three_numbers_are_checked_too() {
    let make = |gigabytes: f64, bandwidth: f64, tflops: f64| {
        let (capacity, bandwidth) = (Bytes::from_gb(gigabytes), BytesPerSecond::from_gb_per_second(bandwidth));
        Device::from_specs("My Card #1", capacity, bandwidth, FlopsPerSecond::from_tflops_per_second(tflops))
    };
    assert_eq!(make(24.0, 1000.0, 165.0).unwrap().slug(), "my-card-1");
    assert_eq!(make(24.0, 1000.0, 165.0).unwrap().assumptions().len(), 4);
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for result in [make(bad, 1.0, 1.0), make(1.0, bad, 1.0), make(1.0, 1.0, bad)] {
            assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{bad} was accepted");
        }
    }
    let mut profile = make(24.0, 1000.0, 165.0).unwrap().into_profile();
    (profile.compute.fp16, profile.compute.bf16) = (None, None);
    assert_eq!(Device::new(profile), Err(DeviceError::NoFloatFormat));
}

proptest! {
    /// A cut, a doubled piece and a foreign piece at any place: an error or a device, never a panic, and errors name the file.
    #[test]
    fn damaged_profiles_never_panic(from in 0usize..3000, length in 0usize..60, foreign in ".{0,12}") {
        let good = text("rtx-3090-24gb");
        prop_assert!(good.is_ascii()); // so that it can be cut anywhere
        let from = from.min(good.len());
        let to = (from + length).min(good.len());
        let (before, piece, after) = (&good[..from], &good[from..to], &good[to..]);
        for damaged in [format!("{before}{after}"), format!("{before}{piece}{piece}{after}"), format!("{before}{foreign}{after}")] {
            match Device::from_toml(&damaged, "damaged.toml") {
                Ok(device) => prop_assert!(device.ridge(Bf16).as_flops_per_byte() > 0.0),
                Err(error) => prop_assert!(error.to_string().starts_with("damaged.toml")),
            }
        }
    }

    /// `ridge = peak / bandwidth` for whatever numbers, and the profile written is the profile read.
    #[test]
    fn devices_of_three_numbers_round_trip(capacity in 1e-3f64..1e6, bandwidth in 1e-3f64..1e6, peak in 1e-3f64..1e6) {
        let rate = BytesPerSecond::from_gb_per_second(bandwidth);
        let device = Device::from_specs("card", Bytes::from_gb(capacity), rate, FlopsPerSecond::from_tflops_per_second(peak));
        let device = device.unwrap();
        let ridge = device.ridge(Fp16).as_flops_per_byte();
        prop_assert!((ridge * bandwidth / (peak * 1e3) - 1.0).abs() < 1e-12);
        prop_assert_eq!(Device::from_toml(&device.to_toml(), "card").unwrap(), device);
    }

    /// A mesh gives no group more than the whole domain, and no larger group less.
    #[test]
    fn mesh_bandwidth_grows_with_the_group(group in 2u32..8) {
        let (_, smaller) = link("mi300x-192gb", 8, group);
        let (_, larger) = link("mi300x-192gb", 8, group + 1);
        prop_assert!(smaller < larger && larger <= 448.0);
    }
}
