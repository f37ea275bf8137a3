"""The report's section on the federation: who joined tunnels with whom, and each tunnel's way."""

from collections import Counter

from pipeline.report import units
from pipeline.report.cells import (
    Nodes,
    count_cell,
    duration_cell,
    first_of,
    node_cell,
    picture,
    session_cell,
    size_cell,
    time_cell,
)
from pipeline.report.figures import TOP_NODES, Figures, TunnelLink, TunnelSummary
from pipeline.report.html import Child, Markup, Number, element, table
from pipeline.report.plots import graph_plot

_UNKNOWN = "?"


def federation_section(figures: Figures, nodes: Nodes) -> list[Markup]:
    """The graph of the federation, its links and its tunnels, as servers tell of them."""
    if not figures.tunnel_rows:
        return [
            element("p", "No tunnels: no server whose journal is here says that it joined one.")
        ]
    said = "What servers say of tunnels that they joined; no seal covers it"
    parts = [_graph(figures, nodes)] if figures.links else []
    links = figures.links
    caption = first_of(
        f"Neighbours in tunnels, in the direction of the dial. {said}",
        len(links),
        None,
        figures.rows,
    )
    columns = ("From", "To", Number("Tunnels"), Number("Forward"), Number("Back"))
    parts.append(table(caption, columns, [_link(link, nodes) for link in links]))
    rows = figures.tunnel_rows
    head = (
        "Tunnel", "Path", Number("Servers that tell of it"), Number("Times"), "Start (UTC)",
        Number("Duration"), Number("Forward"), Number("Back"),
    )  # fmt: skip
    caption = first_of(
        f"Tunnels by size; {_UNKNOWN} is a node that no journal names, and a tunnel counts several "
        "times if its origin used the trace again",
        len(rows),
        figures.tunnels,
        figures.rows,
    )
    return [*parts, table(caption, head, [_tunnel(row, nodes) for row in rows])]


def _graph(figures: Figures, nodes: Nodes) -> Markup:
    most = figures.links[0]
    alt = (
        "A circle of nodes with arrows from each to those to which it gave tunnels on. The widest "
        f"is from {nodes.told(most.before)} to {nodes.told(most.after)} with "
        f"{units.counted(most.tunnels, 'tunnel')}. The table below has the numbers."
    )
    caption = (
        "Who gives tunnels to whom; wider arrows are more tunnels. Filled circles keep a journal, "
        f"empty ones do not, red squares have faults in theirs. At most {TOP_NODES} nodes."
    )
    by_node: Counter[str] = Counter()
    for link in figures.links:
        by_node.update({link.before: link.tunnels, link.after: link.tunnels})
    busiest = {node for node, _ in by_node.most_common(TOP_NODES)}
    arrows = [
        (link.before, link.after, link.tunnels)
        for link in figures.links
        if busiest.issuperset((link.before, link.after))
    ]
    return picture(graph_plot(arrows, figures.servers, nodes), alt, caption)


def _link(link: TunnelLink, nodes: Nodes) -> tuple[Child, ...]:
    return (
        node_cell(link.before, nodes),
        node_cell(link.after, nodes),
        count_cell(link.tunnels),
        size_cell(link.forward),
        size_cell(link.back),
    )


def _tunnel(row: TunnelSummary, nodes: Nodes) -> tuple[Child, ...]:
    way: list[Child] = []
    for node in row.path:
        way += [" → ", _UNKNOWN if node is None else node_cell(node, nodes)]
    return (
        session_cell(row.trace),
        element("div", *way[1:], class_="evidence"),
        count_cell(row.hops),
        count_cell(row.tunnels),
        time_cell(row.began),
        duration_cell(row.duration_us),
        size_cell(row.forward),
        size_cell(row.back),
    )
