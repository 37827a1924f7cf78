//! What holds for every group: limits, monotony, nodes, host staging, refused numbers.

mod common;

use common::cases;
use llm_roofline::collective::{
    Algorithm, AlphaBeta, CollectiveError, CollectiveLaw, Group, HostStaging, InSwitchReduction, Network, Ring,
};
use llm_roofline::hardware::{LinkKind, System};
use llm_roofline::prelude::*;
use proptest::prelude::*;

const fn us(micros: f64) -> Seconds {
    Seconds::from_micros(micros)
}

const fn gb_per_second(gigabytes: f64) -> BytesPerSecond {
    BytesPerSecond::from_gb_per_second(gigabytes)
}

fn close(a: Seconds, b: Seconds) -> bool {
    (a.as_seconds() - b.as_seconds()).abs() <= 1e-9 * b.as_seconds().abs()
}

fn at_most(a: Seconds, b: Seconds) -> bool {
    a <= b * (1.0 + 1e-9)
}

/// The five times of a message.
fn times(group: &Group, message: Bytes) -> [Seconds; 5] {
    [
        group.all_reduce(message),
        group.all_gather(message),
        group.reduce_scatter(message),
        group.all_to_all(message),
        group.point_to_point(message),
    ]
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    (0.0..30.0, 0.0..3.0, 0.1..1.0).prop_map(|(latency, per_device, efficiency)| Algorithm {
        latency: us(latency),
        latency_per_device: us(per_device),
        efficiency,
    })
}

fn any_ring() -> impl Strategy<Value = Ring> {
    (0.0..30.0, 0.0..5.0, 0.1..1.0).prop_map(|(latency, hop, efficiency)| Ring {
        latency: us(latency),
        hop_latency: us(hop),
        efficiency,
    })
}

prop_compose! {
    fn any_law()(
        one_shot in prop::option::of(any_algorithm()),
        two_shot in prop::option::of(any_algorithm()),
        ring in any_ring(),
        in_switch in prop::option::of((any_algorithm(), 2u64..10)),
        others in [any_algorithm(), any_algorithm(), any_algorithm()],
        extra in 0.0..10.0,
        factor in 0.5..2.0,
    ) -> CollectiveLaw {
        let [gather, all_to_all, point_to_point] = others;
        let in_switch = in_switch.map(|(Algorithm { latency, efficiency, .. }, minimum_devices)| {
            InSwitchReduction { latency, efficiency, minimum_devices }
        });
        CollectiveLaw {
            one_shot, two_shot, ring, in_switch, gather, all_to_all, point_to_point, extra: us(extra), factor,
        }
    }
}

prop_compose! {
    fn any_group()(
        (nodes, per_node) in (1u64..5, 1u64..9),
        bandwidth in 1.0..1000.0,
        network in (1.0..100.0, any_ring()),
        law in any_law(),
        staged in prop::option::of(0.1..1.0),
    ) -> Group {
        Group {
            size: nodes * per_node,
            bandwidth: gb_per_second(bandwidth),
            law,
            host_staging: staged.map(|efficiency| HostStaging { sharing_devices: per_node, efficiency }),
            network: Some(Network { nodes, bandwidth: gb_per_second(network.0), ring: network.1 }),
        }
    }
}

proptest! {
    #![proptest_config(cases(256, "tests/collective.proptest-regressions"))]

    #[test]
    fn more_bytes_are_never_faster_and_more_bandwidth_is_never_slower(
        group in any_group(), megabytes in 0.0..100.0, more in 1.0..10.0,
    ) {
        prop_assert_eq!(group.check(), Ok(()));
        let message = Bytes::from_mb(megabytes);
        let wider_links = Group { bandwidth: group.bandwidth * more, ..group };
        let network = group.network.unwrap();
        let wider_network = group.with_network(Network { bandwidth: network.bandwidth * more, ..network });
        let now = times(&group, message);
        let compared = [times(&group, message * more), times(&wider_links, message), times(&wider_network, message)];
        for index in 0..now.len() {
            prop_assert!(now[index].is_finite() && now[index] >= Seconds::ZERO);
            let [larger, wider, far] = compared.map(|times| times[index]);
            prop_assert!(at_most(now[index], larger) && at_most(wider, now[index]) && at_most(far, now[index]), "{index}");
        }
    }

    #[test]
    fn one_device_needs_no_time(law in any_law(), megabytes in 0.0..100.0) {
        let alone = Group { law, ..Group::textbook(1, gb_per_second(100.0), Seconds::ZERO) };
        prop_assert_eq!(times(&alone, Bytes::from_mb(megabytes)), [Seconds::ZERO; 5]);
    }

    #[test]
    fn an_all_reduce_is_the_fastest_of_its_algorithms(law in any_law(), size in 2u64..17, megabytes in 0.0..100.0) {
        let message = Bytes::from_mb(megabytes);
        let time = |law| Group { law, ..Group::textbook(size, gb_per_second(100.0), Seconds::ZERO) }.all_reduce(message);
        let ring_only = CollectiveLaw { one_shot: None, two_shot: None, in_switch: None, ..law };
        let each = [
            ring_only,
            CollectiveLaw { one_shot: law.one_shot, ..ring_only },
            CollectiveLaw { two_shot: law.two_shot, ..ring_only },
            CollectiveLaw { in_switch: law.in_switch, ..ring_only },
        ];
        let fastest = each.map(time).into_iter().reduce(Seconds::min).unwrap();
        prop_assert_eq!(time(law), fastest);
    }

    #[test]
    fn at_full_bandwidth_the_way_over_nodes_moves_what_it_must(
        (nodes, per_node) in (2u64..9, 1u64..9), megabytes in 0.0..100.0,
    ) {
        // Reduce-scatter and all-gather inside move 2(g-1)/g of the message, each device's shard 2(k-1)/k of M/g over the network.
        let (inside, outside, message) = (gb_per_second(450.0), gb_per_second(50.0), Bytes::from_mb(megabytes));
        let network = Network { nodes, bandwidth: outside, ring: Ring::textbook(Seconds::ZERO) };
        let group = Group::textbook(nodes * per_node, inside, Seconds::ZERO).with_network(network);
        let (k, g) = (nodes as f64, per_node as f64);
        let expected = message / inside * (2.0 * (g - 1.0) / g) + message / outside * (2.0 * (k - 1.0) / k / g);
        prop_assert!(close(group.all_reduce(message), expected));
        prop_assert!(close(group.reduce_scatter(message) + group.all_gather(message), expected));
        // No device can be faster than its port lets it: (n-g)/n of an all-to-all leaves the node.
        let leaves = message / outside * ((k - 1.0) / k);
        prop_assert!(at_most(leaves, group.all_to_all(message)));
    }
}

#[test]
fn short_messages_go_in_one_shot_and_long_ones_in_two() {
    let (latency, bandwidth) = (us(5.0), gb_per_second(100.0));
    let group = Group::textbook(8, bandwidth, latency);
    let (short, long) = (Bytes::from_kb(10.0), Bytes::from_mb(10.0));
    assert!(close(group.all_reduce(short), us(5.0) + short / bandwidth * 7.0));
    assert!(close(group.all_reduce(long), us(10.0) + long / bandwidth * 1.75));
    // With a reduction in the switch a device moves the message once, if the group is large enough.
    let in_switch = |minimum_devices| {
        let switch = InSwitchReduction::multi_shot(us(5.0), 1.0, minimum_devices);
        Group { law: CollectiveLaw { in_switch: Some(switch), ..group.law }, ..group }.all_reduce(long)
    };
    assert!(close(in_switch(8), us(10.0) + long / bandwidth));
    assert_eq!(in_switch(9), group.all_reduce(long));
}

#[test]
fn latencies_grow_with_devices_where_the_law_says_so() {
    let two_shot = Algorithm { latency: us(5.0), latency_per_device: us(0.75), efficiency: 0.7 };
    let law = CollectiveLaw { two_shot: Some(two_shot), one_shot: None, ..CollectiveLaw::textbook(us(50.0)) };
    let latency =
        |size, law| Group { law, ..Group::textbook(size, gb_per_second(1.0), us(0.0)) }.all_reduce(Bytes::ZERO);
    assert!(close(latency(4, law), us(8.0)));
    assert!(close(latency(8, law), us(11.0)));
    let old_engine = CollectiveLaw { extra: us(6.0), factor: 1.15, ..law };
    assert!(close(latency(8, old_engine), us(1.15 * (11.0 + 6.0))));
}

#[test]
fn staging_through_the_host_divides_the_bandwidth_and_leaves_the_ring() {
    let pcie = |size| Group::textbook(size, gb_per_second(32.0), us(2.0));
    let staged = |size| pcie(size).with_host_staging(HostStaging { sharing_devices: size, efficiency: 0.6 });
    let message = Bytes::from_mb(100.0);
    // Ring: 14 hops; 1.75 times the message at 0.6 * 32 / 8 = 2.4 GB/s.
    assert!(close(staged(8).all_reduce(message), us(28.0) + message / gb_per_second(2.4) * 1.75));
    assert!(staged(2).all_reduce(message) > pcie(2).all_reduce(message));
}

#[test]
fn groups_follow_the_links_of_a_system() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 16).unwrap();
    let group = |size| {
        let links = system.group_links(size).unwrap();
        Group::over(&links, CollectiveLaw::ideal(), Ring::textbook(us(10.0)))
    };
    let (node, both) = (group(8), group(16));
    assert_eq!((node.network, node.bandwidth), (None, system.group_link(8).unwrap().bandwidth));
    let network = both.network.unwrap();
    assert_eq!((network.nodes, network.bandwidth), (2, gb_per_second(50.0)));
    assert_eq!(both.bandwidth, node.bandwidth);
    let message = Bytes::from_mb(1.0);
    // Flat over the network it would be 30 hops and 1.875 times the message at 50 GB/s.
    let flat = Group::textbook(16, network.bandwidth, us(10.0));
    assert!(node.all_reduce(message) < both.all_reduce(message) && both.all_reduce(message) < flat.all_reduce(message));
    assert!(group(1).check().is_ok());
    assert!(system.group_links(17).is_err());

    let apart = |distance| system.pair_link(distance).unwrap().kind;
    assert_eq!((apart(1), apart(7), apart(8)), (LinkKind::Nvlink, LinkKind::Nvlink, LinkKind::Network));
    assert!(system.pair_link(16).is_err() && system.pair_link(0).is_err());
    let hop = |distance| {
        let link = system.pair_link(distance).unwrap();
        Group::pair(&link, CollectiveLaw::textbook(us(5.0)), Ring::textbook(us(10.0))).point_to_point(message)
    };
    assert!(close(hop(1), us(5.0) + message / node.bandwidth));
    assert!(close(hop(8), us(10.0) + message / network.bandwidth));
}

#[test]
fn bridged_pairs_reach_other_pairs_over_the_host() {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device("h100-nvl-94gb").unwrap(), 4).unwrap();
    assert_eq!(system.pair_link(1).unwrap().kind, LinkKind::NvlinkBridge);
    assert_eq!(system.pair_link(2).unwrap().kind, LinkKind::Pcie);
    assert_eq!(system.group_links(4).unwrap().inside.unwrap().kind, LinkKind::Pcie);
}

#[test]
fn impossible_numbers_are_refused() {
    let group = Group::textbook(8, gb_per_second(100.0), us(1.0));
    let with = |change: fn(&mut CollectiveLaw)| {
        let mut law = group.law;
        change(&mut law);
        Group { law, ..group }.check().unwrap_err().to_string()
    };
    assert_eq!(
        with(|law| law.gather.efficiency = 0.0),
        "gather.efficiency is 0, expected a share above 0 and at most 1"
    );
    assert_eq!(
        with(|law| law.ring.hop_latency = us(-1.0)),
        "ring.hop_latency is -1.00 us, expected a finite time that is not negative"
    );
    assert_eq!(with(|law| law.factor = f64::NAN), "factor is NaN, expected a positive finite one");
    let slow = Group { bandwidth: BytesPerSecond::ZERO, ..group };
    assert!(matches!(slow.check(), Err(CollectiveError::Bandwidth { key: "bandwidth", .. })));
    let network = Network { nodes: 9, bandwidth: gb_per_second(1.0), ring: Ring::textbook(us(1.0)) };
    assert_eq!(group.with_network(network).check(), Err(CollectiveError::Nodes { nodes: 9, size: 8 }));
}

#[test]
fn lines_add_up_and_overlap() {
    let a = AlphaBeta { latency: us(1.0), seconds_per_byte: 2e-9 };
    let b = AlphaBeta { latency: us(3.0), seconds_per_byte: 1e-9 };
    let message = Bytes::from_kb(1.0);
    assert!(close((a + b).time(message), a.time(message) + b.time(message)));
    assert!(close(a.beside(b).time(message), us(5.0)));
}
