//! Reads the tables of kernel measurements.
//!
//! # References
//! NVIDIA aiconfigurator (Apache-2.0), commit 095f58a5, `systems/data`: kernels of vLLM, SGLang and TensorRT-LLM replayed in CUDA
//! graphs. The tables here are its rows for shapes of language models, one CSV per operator. Rows that show the benchmark rather
//! than the kernel are left out: operands that stayed in the level-2 cache, and paths that no engine takes for that format.

use super::laws::{AllReduce, DecodeAttention, Experts, Gemm, PrefillAttention};
use super::{KernelError, Measured};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

const HEAD_DIM: f64 = 128.0;

/// A table in memory: its header and its lines.
struct Table {
    name: String,
    columns: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// One line with access by column.
#[derive(Clone, Copy)]
struct Line<'a> {
    table: &'a Table,
    number: usize,
    cells: &'a [String],
}

impl Table {
    fn read(folder: &Path, name: &str) -> Result<Self, KernelError> {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|source| KernelError::Read { path, source })?;
        let split = |line: &str| line.split(',').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(split);
        let columns = lines.next().unwrap_or_default();
        Ok(Self { name: name.to_string(), columns, lines: lines.collect() })
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().enumerate().map(|(number, cells)| Line { table: self, number: number + 1, cells })
    }
}

impl Line<'_> {
    fn text(&self, column: &str) -> Result<&str, KernelError> {
        let position = self.table.columns.iter().position(|name| name == column);
        let cell = position.and_then(|position| self.cells.get(position));
        cell.map(String::as_str).ok_or_else(|| self.wrong(column, "nothing"))
    }

    fn parsed<T: FromStr>(&self, column: &str) -> Result<T, KernelError> {
        let text = self.text(column)?;
        text.parse().map_err(|_| self.wrong(column, text))
    }

    /// A positive number.
    fn number(&self, column: &str) -> Result<f64, KernelError> {
        let value: f64 = self.parsed(column)?;
        if value > 0.0 && value.is_finite() { Ok(value) } else { Err(self.wrong(column, &value.to_string())) }
    }

    fn wrong(&self, column: &str, found: &str) -> KernelError {
        let (table, column, found) = (self.table.name.clone(), column.to_string(), found.to_string());
        KernelError::Cell { table, row: self.number, column, found }
    }
}

/// Peaks of one device, in operations, bytes or link bytes per microsecond.
#[derive(Clone, Copy, Debug)]
struct Peaks {
    flops: [Option<f64>; 3],
    bandwidth: f64,
    l2_bytes: f64,
    multiprocessors: f64,
    link: f64,
}

impl Peaks {
    fn compute(&self, line: Line<'_>, format: Format) -> Result<f64, KernelError> {
        let [bf16, fp8, fp4] = self.flops;
        let peak = match format {
            Format::Bf16 => bf16,
            Format::Fp8 => fp8,
            Format::Fp4 => fp4,
        };
        peak.ok_or_else(|| line.wrong("gpu", "a device without a peak for this format"))
    }
}

/// Width class of a number format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Bf16,
    Fp8,
    Fp4,
}

impl Format {
    fn of(line: Line<'_>, column: &str) -> Result<Self, KernelError> {
        match line.text(column)? {
            "bfloat16" => Ok(Self::Bf16),
            "fp8" | "fp8_block" => Ok(Self::Fp8),
            "nvfp4" => Ok(Self::Fp4),
            other => Err(line.wrong(column, other)),
        }
    }

    /// Bytes per weight, with one scale of 8 bits per 16 weights for NVFP4.
    fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Fp4 => 0.5625,
        }
    }
}

/// The devices of `specs.csv`.
pub(super) struct Devices(BTreeMap<String, Peaks>);

impl Devices {
    /// Reads the peaks that the laws divide by.
    pub(super) fn read(folder: &Path) -> Result<Self, KernelError> {
        let table = Table::read(folder, "specs.csv")?;
        let peaks = table.lines().map(|line| {
            let tera = |column| match line.text(column)? {
                "" => Ok(None),
                _ => line.number(column).map(|tera| Some(tera * 1e6)),
            };
            let flops = [tera("bf16_tflops_dense")?, tera("fp8_tflops_dense")?, tera("fp4_tflops_dense")?];
            let bandwidth = line.number("mem_gbs")? * 1e3;
            let (l2_bytes, link) = (line.number("l2_mb")? * 1e6, line.number("link_gbs_per_direction")? * 1e3);
            let multiprocessors = line.number("sms")?;
            Ok((line.text("gpu")?.to_string(), Peaks { flops, bandwidth, l2_bytes, multiprocessors, link }))
        });
        peaks.collect::<Result<_, _>>().map(Self)
    }

    fn of(&self, line: Line<'_>) -> Result<Peaks, KernelError> {
        let gpu = line.text("gpu")?;
        self.0.get(gpu).copied().ok_or_else(|| line.wrong("gpu", gpu))
    }

    /// Reads one table; `law` gives what to fit of a line, or `None` for a line to leave out.
    fn rows<L>(
        &self,
        folder: &Path,
        file: &str,
        [framework, format]: [&str; 2],
        law: impl Fn(Line<'_>, Peaks) -> Result<Option<L>, KernelError>,
    ) -> Result<Vec<Measured<L>>, KernelError> {
        let table = Table::read(folder, file)?;
        let mut rows = Vec::new();
        for line in table.lines() {
            let Some(law) = law(line, self.of(line)?)? else { continue };
            let (device, framework) = (line.text("gpu")?.to_string(), line.text(framework)?.to_string());
            let format = if format.is_empty() { "any" } else { line.text(format)? }.to_string();
            rows.push(Measured { device, framework, format, law, measured_us: line.number("latency_us")? });
        }
        Ok(rows)
    }

    /// Matrix products.
    pub(super) fn gemm(&self, folder: &Path) -> Result<Vec<Measured<Gemm>>, KernelError> {
        self.rows(folder, "gemm.csv", ["framework", "gemm_dtype"], |line, peaks| {
            let [m, n, k] = [line.number("m")?, line.number("n")?, line.number("k")?];
            let format = Format::of(line, "gemm_dtype")?;
            let weights = n * k * format.bytes();
            let blocks = line.text("gemm_dtype")? == "fp8_block";
            // Several copies of the weight are cycled, yet they still fit into the cache of these parts.
            let cached = is_large_cache(line)? && weights < peaks.l2_bytes / 2.0 && m < 1024.0;
            // On Hopper these row counts take a slow path; vLLM mixes several kernels.
            let ragged = blocks && super::generation(line.text("gpu")?) == "hopper" && m % 4.0 != 0.0;
            if cached || ragged || blocks && line.text("framework")? == "vllm" {
                return Ok(None);
            }
            let quantize_us = if format == Format::Bf16 { 0.0 } else { 3.0 * m * k / peaks.bandwidth };
            Ok(Some(Gemm {
                k,
                compute_us: 2.0 * m * n * k / peaks.compute(line, format)?,
                memory_us: (weights + 2.0 * m * (n + k)) / peaks.bandwidth,
                quantize_us,
            }))
        })
    }

    /// Attention of one new token per sequence, with a cache well beyond level 2.
    pub(super) fn decode(
        &self,
        folder: &Path,
        shortest_context: f64,
    ) -> Result<Vec<Measured<DecodeAttention>>, KernelError> {
        self.rows(folder, "decode_attention.csv", ["framework", "kv_cache_dtype"], |line, peaks| {
            let (batch, context) = (line.number("batch_size")?, line.number("context")?);
            let (heads, kv_heads) = (line.number("num_heads")?, line.number("num_key_value_heads")?);
            let width = Format::of(line, "kv_cache_dtype")?.bytes();
            let cache = 2.0 * batch * context * kv_heads * HEAD_DIM * width;
            let memory_us = (cache + 4.0 * batch * heads * HEAD_DIM) / peaks.bandwidth;
            let items = batch * kv_heads / peaks.multiprocessors;
            let beyond_cache = cache > 1.3 * peaks.l2_bytes && context >= shortest_context;
            Ok(beyond_cache.then_some(DecodeAttention { memory_us, items }))
        })
    }

    /// Causal attention of whole prompts.
    pub(super) fn prefill(&self, folder: &Path) -> Result<Vec<Measured<PrefillAttention>>, KernelError> {
        self.rows(folder, "prefill_attention.csv", ["framework", "attn_dtype"], |line, peaks| {
            let (batch, prompt) = (line.number("batch_size")?, line.number("isl")?);
            let (heads, kv_heads) = (line.number("num_heads")?, line.number("num_key_value_heads")?);
            let tokens = batch * prompt * HEAD_DIM;
            Ok(Some(PrefillAttention {
                compute_us: 2.0 * tokens * heads * (prompt + 128.0) / peaks.compute(line, Format::Bf16)?,
                memory_us: 2.0 * tokens * (2.0 * heads + 2.0 * kv_heads) / peaks.bandwidth,
                tokens: prompt,
            }))
        })
    }

    /// Expert layers on one device with even routing.
    pub(super) fn experts(&self, folder: &Path) -> Result<Vec<Measured<Experts>>, KernelError> {
        self.rows(folder, "moe.csv", ["framework", "moe_dtype"], |line, peaks| {
            let [hidden, inner] = [line.number("hidden_size")?, line.number("inter_size")?];
            let (experts, rows) = (line.number("num_experts")?, line.number("num_tokens")? * line.number("topk")?);
            let format = Format::of(line, "moe_dtype")?;
            let active = experts.min(rows);
            // vLLM's per-tensor path on Hopper is not the one it serves with.
            let odd = line.text("moe_dtype")? == "fp8"
                && line.text("framework")? == "vllm"
                && super::generation(line.text("gpu")?) == "hopper";
            // Up to 1.8 times faster than the peak bandwidth allows for 256 experts: grouped routing reached only half of them.
            let half = experts == 256.0 && line.text("framework")? != "trtllm";
            let even = line.text("distribution")? == "balanced" && line.text("moe_ep_size")? == "1";
            let law = Experts {
                compute_us: 6.0 * hidden * inner * rows / peaks.compute(line, format)?,
                memory_us: active * 3.0 * hidden * inner * format.bytes() / peaks.bandwidth,
                activation_us: 2.0 * rows * (2.0 * hidden + 3.0 * inner) / peaks.bandwidth,
            };
            Ok((even && !odd && !half).then_some(law))
        })
    }

    /// All-reduces of one kind.
    pub(super) fn all_reduce(&self, folder: &Path, kind: Reducer) -> Result<Vec<Measured<AllReduce>>, KernelError> {
        self.rows(folder, "all_reduce.csv", ["impl", ""], |line, peaks| {
            let bus = matches!(super::generation(line.text("gpu")?), "ada" | "blackwell-gddr" | "battlemage");
            let found = match (line.text("impl")?, bus) {
                ("nccl", _) => Reducer::Library,
                (_, true) => Reducer::EngineOverBus,
                (_, false) => Reducer::EngineOverLinks,
            };
            let law = AllReduce { devices: line.number("n_gpus")?, message_us: line.number("bytes")? / peaks.link };
            Ok((found == kind).then_some(law))
        })
    }
}

/// Who reduces, and over what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reducer {
    /// An engine's own kernels over links between every pair of devices.
    EngineOverLinks,
    /// An engine's choice over PCIe.
    EngineOverBus,
    /// NCCL.
    Library,
}

/// Parts whose level-2 cache holds every copy of a small weight that the benchmark cycles through.
fn is_large_cache(line: Line<'_>) -> Result<bool, KernelError> {
    Ok(matches!(super::generation(line.text("gpu")?), "ada" | "blackwell-gddr"))
}
