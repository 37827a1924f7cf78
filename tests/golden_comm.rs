//! Published numbers of communication between devices, each recomputed with the public API.
//!
//! The source of each number stands above it. Tolerances cover the digits that the source prints.

use llm_roofline::collective::{
    Collective, CollectiveLaw, ExpertExchange, Group, InSwitchReduction, NcclLatency, Ring, pipeline_bubble,
};
use llm_roofline::units::*;

/// Rounding of floating-point sums where the source prints an exact number.
const EXACT: f64 = 1e-12;

fn assert_close(id: &str, found: f64, expected: f64, tolerance: f64) {
    let deviation = (found / expected - 1.0).abs();
    assert!(deviation <= tolerance, "{id}: published {expected}, computed {found}");
}

const fn us(micros: f64) -> Seconds {
    Seconds::from_micros(micros)
}

/// NVIDIA/nccl-tests, doc/PERFORMANCE.md: bus bandwidth is algorithm bandwidth times 2(n-1)/n for an all-reduce and (n-1)/n for
/// all-gather, reduce-scatter and all-to-all. Evaluated from the printed formulas.
#[test]
fn bus_bandwidth_factors() {
    let rows = [("CM-001", 2, 1.0), ("CM-002", 4, 1.5), ("CM-003", 8, 1.75), ("CM-004", 16, 1.875)];
    for (id, devices, factor) in rows {
        assert_close(id, Collective::AllReduce.bus_bandwidth_factor(devices), factor, EXACT);
    }
    for collective in [Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll] {
        assert_close("CM-005", collective.bus_bandwidth_factor(8), 0.875, EXACT);
    }
    // The same factors are what the groups' laws move: 1 GB over 8 devices at 450 GB/s.
    let (group, gigabyte) = (nvlink(8), Bytes::from_gb(1.0));
    assert_close("CM-006", group.all_reduce(gigabyte).as_millis(), 3.888889, 1e-5);
    let once = gigabyte / group.bandwidth;
    for time in [group.all_gather(gigabyte), group.reduce_scatter(gigabyte), group.all_to_all(gigabyte)] {
        assert_close("CM-005", time / once, 0.875, EXACT);
    }
}

fn nvlink(devices: u64) -> Group {
    Group::textbook(devices, BytesPerSecond::from_gb_per_second(450.0), Seconds::ZERO)
}

/// NVIDIA/nccl, src/graph/tuning.cc, default tuner constants of NVLink: base and hop in microseconds. The latency of 8 devices in a node
/// is derived from them by the formula printed there.
#[test]
fn latencies_of_the_nccl_tuner() {
    let latency = |base, hop| NcclLatency { base: us(base), hop_inside: us(hop), hop_across: us(1e6) };
    let rings = [
        ("CM-010", "LL", latency(6.6, 0.6), 15.0),
        ("CM-011", "LL128", latency(14.0, 1.9), 40.6),
        ("CM-012", "Simple", latency(8.4, 3.4), 56.0),
    ];
    for (id, protocol, law, expected) in rings {
        let found = law.ring(Collective::AllReduce, 8, 1);
        assert_close(&format!("{id} {protocol}"), found.as_micros(), expected, 1e-4);
        let ring = Ring { latency: law.base, hop_latency: law.hop_inside, efficiency: 1.0 };
        let group = Group { law: CollectiveLaw { ring, ..ring_only() }, ..nvlink(8) };
        assert_close(&format!("{id} group"), group.all_reduce(Bytes::ZERO).as_micros(), expected, 1e-4);
    }
    for (id, law, expected) in [("CM-013", latency(6.8, 0.6), 15.2), ("CM-014", latency(8.4, 4.0), 64.4)] {
        assert_close(id, law.tree_all_reduce(8, 1).as_micros(), expected, 1e-4);
    }
    // NVLS: 25 us, whatever the group.
    let in_switch = InSwitchReduction { latency: us(25.0), efficiency: 0.85, minimum_devices: 2 };
    let ring = Ring { latency: us(8.4), hop_latency: us(3.4), efficiency: 1.0 };
    let law = CollectiveLaw { in_switch: Some(in_switch), ring, ..ring_only() };
    for devices in [8, 72] {
        let group = Group { law, ..nvlink(devices) };
        assert_close("CM-015", group.all_reduce(Bytes::ZERO).as_micros(), 25.0, EXACT);
    }
}

fn ring_only() -> CollectiveLaw {
    CollectiveLaw { one_shot: None, two_shot: None, ..CollectiveLaw::ideal() }
}

/// The same source, over several nodes: `2(n-1)` steps of which `2(nodes-1)` between nodes; trees descend `log2(nodes)` of them.
#[test]
fn latencies_over_nodes_count_the_hops_between_them() {
    let law = NcclLatency { base: us(1.0), hop_inside: us(10.0), hop_across: us(1000.0) };
    // 16 devices on 2 nodes: 28 steps inside, 2 between.
    assert_close("ring", law.ring(Collective::AllReduce, 16, 2).as_micros(), 1.0 + 280.0 + 2000.0, EXACT);
    assert_close("gather", law.ring(Collective::AllGather, 16, 2).as_micros(), 1.0 + 140.0 + 1000.0, EXACT);
    assert_close("tree", law.tree_all_reduce(32, 4).as_micros(), 1.0 + 2.0 * (70.0 + 2000.0), EXACT);
}

/// NVIDIA technical blog, "3x Faster AllReduce with NVSwitch and TensorRT-LLM MultiShot": 2N-2 steps around a ring, 2 with MultiShot.
#[test]
fn steps_of_ring_and_multi_shot() {
    assert_eq!(Collective::AllReduce.ring_steps(8), 14, "CM-016");
    assert_eq!(InSwitchReduction::multi_shot(us(1.0), 1.0, 2).latency, us(2.0), "CM-016");
}

/// Zhao et al., "Insights into DeepSeek-V3" (ISCA 2025, arXiv 2505.09343), section 2.3.2: dispatch in 1 byte, combine in 2, 32 tokens per
/// device, 8 routed and 1 shared expert, the hidden size taken as 7000 (it is 7168).
#[test]
fn expert_exchange_of_deepseek_v3() {
    let exchange = ExpertExchange {
        tokens: 32,
        experts_per_token: 9,
        hidden_size: 7000,
        dispatch_element: Bytes::from_bytes(1.0),
        combine_element: Bytes::from_bytes(2.0),
    };
    let layers = 61.0;
    let infiniband = BytesPerSecond::from_gb_per_second(50.0);
    assert_close("CM-020", exchange.layer_time(infiniband, 1).as_micros(), 120.96, EXACT);
    assert_close("CM-021", exchange.layer_time(infiniband, 2).as_micros(), 241.92, EXACT);
    let tpot = exchange.layer_time(infiniband, 2) * layers;
    assert_close("CM-022", tpot.as_millis(), 14.76, 5e-4);
    assert_close("CM-023", tpot.token_rate().as_tokens_per_second(), 67.0, 0.012); // 67.75, printed as 67

    let nvl72 = BytesPerSecond::from_gb_per_second(900.0);
    assert_close("CM-024", exchange.layer_time(nvl72, 1).as_micros(), 6.72, EXACT);
    let tpot = exchange.layer_time(nvl72, 2) * layers;
    assert_close("CM-025", tpot.as_millis(), 0.82, 1e-3);
    assert_close("CM-026", tpot.token_rate().as_tokens_per_second(), 1200.0, 0.02); // "over 1200"
}

/// Huang et al., GPipe (arXiv 1811.06965): bubble fraction (p-1)/(m+p-1), evaluated.
#[test]
fn pipeline_bubbles() {
    let rows = [("CM-030", 4, 1, 0.75), ("CM-031", 4, 8, 0.27272727), ("CM-032", 8, 32, 0.17948718)];
    for (id, stages, micro_batches, expected) in rows {
        assert_close(id, pipeline_bubble(stages, micro_batches), expected, 1e-6);
    }
    assert_eq!(pipeline_bubble(0, 0), 0.0);
}
