// The layout of a graph, in a thread of its own: where nodes stand, and how edges run.
"use strict";
importScripts("dagre.min.js");

onmessage = (message) => {
  const { number, nodes } = message.data;
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 30, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) {
    graph.setNode(node.id, { width: node.width, height: node.height });
  }
  for (const node of nodes) {
    for (const [source, position] of node.sources) {
      graph.setEdge(source, node.id, {}, `${position}`);
    }
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  postMessage({
    number,
    width,
    height,
    nodes: nodes.map(({ id }) => ({ id, x: graph.node(id).x, y: graph.node(id).y })),
    edges: graph.edges().map((edge) => ({
      from: Number(edge.v), to: Number(edge.w), points: graph.edge(edge).points,
    })),
  });
};
